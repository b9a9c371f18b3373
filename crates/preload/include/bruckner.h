/* Bruckner: MPI collectives by proven schedules. Works with any mpi.h and any MPI that is found at run time.

   Every function returns 0, or a code that bruckner_error_text explains; bruckner_last_error has the details.
   Plans: bruckner_*_init makes one, collectively; bruckner_start, bruckner_test and bruckner_wait use it, again and
   again; bruckner_free ends it.

   What advances a started plan: it goes on while any thread of its process is in bruckner_start, bruckner_test or
   bruckner_wait of any plan, or in a blocking bruckner_* collective that began to wait after it. Calls of MPI itself do not advance it, and neither
   does time. A rank that has started a plan must not wait in MPI for something that another rank sends only after its
   own plan is done.

   Made by cbindgen from crates/preload/src; do not edit. */

#ifndef BRUCKNER_H
#define BRUCKNER_H

#include <mpi.h>
#include <stddef.h>

/*
 A plan: a collective bound to its buffers.
 */
typedef struct bruckner_plan bruckner_plan;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Prepares the library: collective over MPI_COMM_WORLD, after MPI_Init. Without it, communicators other than
 MPI_COMM_WORLD get a hidden communicator each, and only the first 64 are served.
 */
int bruckner_init(void);

/*
 Gives back what the library has; collective over MPI_COMM_WORLD, before MPI_Finalize. It may be left out.
 */
int bruckner_finalize(void);

/*
 Uses algorithms on a communicator from now on: "allreduce=locality(node); allgather=sparbit". Collective, with the
 same text on all ranks.

 # Safety
 A valid communicator and a C string.
 */
int bruckner_set_algorithms(MPI_Comm comm,
                            const char *rules);

/*
 Takes the ranks of a communicator to be placed so from now on, as "4,4,1" or "2x2:cyclic": for tests and experiments.
 Collective, with the same text on all ranks. Ranks that are said to share a node must really share one.

 # Safety
 A valid communicator and a C string.
 */
int bruckner_set_topology(MPI_Comm comm,
                          const char *topology);

/*
 Writes the algorithm that last served a collective ("allreduce") on a communicator: an expression, "native", or
 nothing if there was no call yet. Talks to no other rank.

 # Safety
 A valid communicator, a C string, and room for `length` bytes.
 */
int bruckner_algorithm(MPI_Comm comm,
                       const char *collective,
                       char *algorithm,
                       size_t length);

/*
 Writes which MPI this is: its version, and its family ("MPICH", "Open MPI", "MPI-5 ABI").

 # Safety
 Room for so many bytes each.
 */
int bruckner_about(char *version, size_t version_length, char *family, size_t family_length);

/*
 The value that the library has for a constant of mpi.h, by its name: for tests. Returns 4 for one that it does not
 have.

 # Safety
 A C string, and room for the value.
 */
int bruckner_constant(const char *name,
                      long long *value);

/*
 Does what MPI_Allgather does.

 # Safety
 The arguments are right for MPI_Allgather.
 */
int bruckner_allgather(const void *send,
                       int send_count,
                       MPI_Datatype send_type,
                       void *recv,
                       int recv_count,
                       MPI_Datatype recv_type,
                       MPI_Comm comm);

/*
 Does what MPI_Allgatherv does.

 # Safety
 The arguments are right for MPI_Allgatherv.
 */
int bruckner_allgatherv(const void *send,
                        int send_count,
                        MPI_Datatype send_type,
                        void *recv,
                        const int *recv_counts,
                        const int *displacements,
                        MPI_Datatype recv_type,
                        MPI_Comm comm);

/*
 Does what MPI_Allreduce does.

 # Safety
 The arguments are right for MPI_Allreduce.
 */
int bruckner_allreduce(const void *send,
                       void *recv,
                       int count,
                       MPI_Datatype datatype,
                       MPI_Op op,
                       MPI_Comm comm);

/*
 Does what MPI_Reduce_scatter does.

 # Safety
 The arguments are right for MPI_Reduce_scatter.
 */
int bruckner_reduce_scatter(const void *send,
                            void *recv,
                            const int *counts,
                            MPI_Datatype datatype,
                            MPI_Op op,
                            MPI_Comm comm);

/*
 Does what MPI_Reduce_scatter_block does.

 # Safety
 The arguments are right for MPI_Reduce_scatter_block.
 */
int bruckner_reduce_scatter_block(const void *send,
                                  void *recv,
                                  int count,
                                  MPI_Datatype datatype,
                                  MPI_Op op,
                                  MPI_Comm comm);

/*
 Does what MPI_Alltoall does.

 # Safety
 The arguments are right for MPI_Alltoall.
 */
int bruckner_alltoall(const void *send,
                      int send_count,
                      MPI_Datatype send_type,
                      void *recv,
                      int recv_count,
                      MPI_Datatype recv_type,
                      MPI_Comm comm);

/*
 Does what MPI_Alltoallv does.

 # Safety
 The arguments are right for MPI_Alltoallv.
 */
int bruckner_alltoallv(const void *send,
                       const int *send_counts,
                       const int *send_displacements,
                       MPI_Datatype send_type,
                       void *recv,
                       const int *recv_counts,
                       const int *recv_displacements,
                       MPI_Datatype recv_type,
                       MPI_Comm comm);

/*
 Does what MPI_Bcast does.

 # Safety
 The arguments are right for MPI_Bcast.
 */
int bruckner_bcast(void *data, int count, MPI_Datatype datatype, int root, MPI_Comm comm);

/*
 Does what MPI_Reduce does.

 # Safety
 The arguments are right for MPI_Reduce.
 */
int bruckner_reduce(const void *send,
                    void *recv,
                    int count,
                    MPI_Datatype datatype,
                    MPI_Op op,
                    int root,
                    MPI_Comm comm);

/*
 Does what MPI_Barrier does.

 # Safety
 The arguments are right for MPI_Barrier.
 */
int bruckner_barrier(MPI_Comm comm);

/*
 Makes a plan that does what MPI_Allgather does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Allgather, and stay so as long as the plan is used.
 */
int bruckner_allgather_init(const void *send,
                            int send_count,
                            MPI_Datatype send_type,
                            void *recv,
                            int recv_count,
                            MPI_Datatype recv_type,
                            MPI_Comm comm,
                            const char *algorithm,
                            struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Allgatherv does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Allgatherv, and stay so as long as the plan is used.
 */
int bruckner_allgatherv_init(const void *send,
                             int send_count,
                             MPI_Datatype send_type,
                             void *recv,
                             const int *recv_counts,
                             const int *displacements,
                             MPI_Datatype recv_type,
                             MPI_Comm comm,
                             const char *algorithm,
                             struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Allreduce does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Allreduce, and stay so as long as the plan is used.
 */
int bruckner_allreduce_init(const void *send,
                            void *recv,
                            int count,
                            MPI_Datatype datatype,
                            MPI_Op op,
                            MPI_Comm comm,
                            const char *algorithm,
                            struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Reduce_scatter does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Reduce_scatter, and stay so as long as the plan is used.
 */
int bruckner_reduce_scatter_init(const void *send,
                                 void *recv,
                                 const int *counts,
                                 MPI_Datatype datatype,
                                 MPI_Op op,
                                 MPI_Comm comm,
                                 const char *algorithm,
                                 struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Reduce_scatter_block does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Reduce_scatter_block, and stay so as long as the plan is used.
 */
int bruckner_reduce_scatter_block_init(const void *send,
                                       void *recv,
                                       int count,
                                       MPI_Datatype datatype,
                                       MPI_Op op,
                                       MPI_Comm comm,
                                       const char *algorithm,
                                       struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Alltoall does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Alltoall, and stay so as long as the plan is used.
 */
int bruckner_alltoall_init(const void *send,
                           int send_count,
                           MPI_Datatype send_type,
                           void *recv,
                           int recv_count,
                           MPI_Datatype recv_type,
                           MPI_Comm comm,
                           const char *algorithm,
                           struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Alltoallv does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Alltoallv, and stay so as long as the plan is used.
 */
int bruckner_alltoallv_init(const void *send,
                            const int *send_counts,
                            const int *send_displacements,
                            MPI_Datatype send_type,
                            void *recv,
                            const int *recv_counts,
                            const int *recv_displacements,
                            MPI_Datatype recv_type,
                            MPI_Comm comm,
                            const char *algorithm,
                            struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Bcast does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Bcast, and stay so as long as the plan is used.
 */
int bruckner_bcast_init(void *data,
                        int count,
                        MPI_Datatype datatype,
                        int root,
                        MPI_Comm comm,
                        const char *algorithm,
                        struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Reduce does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Reduce, and stay so as long as the plan is used.
 */
int bruckner_reduce_init(const void *send,
                         void *recv,
                         int count,
                         MPI_Datatype datatype,
                         MPI_Op op,
                         int root,
                         MPI_Comm comm,
                         const char *algorithm,
                         struct bruckner_plan **plan);

/*
 Makes a plan that does what MPI_Barrier does each time it is started. An algorithm that is named is used or refused;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Barrier, and stay so as long as the plan is used.
 */
int bruckner_barrier_init(MPI_Comm comm,
                          const char *algorithm,
                          struct bruckner_plan **plan);

/*
 Starts a plan. It is active until bruckner_wait returns or bruckner_test says that it is done; an active plan may neither be started
 nor freed, whether it is done on this rank or not. Its communicator is freed after it. Ranks may start different plans in any order, but for plans that are the MPI's own collectives
 (bruckner_plan_is_native): all ranks start those in the same order.

 # Safety
 A plan, whose buffers are its own until it is done.
 */
int bruckner_start(struct bruckner_plan *plan);

/*
 Says whether a plan is the MPI's own collective.

 # Safety
 A plan, and room for an int.
 */
int bruckner_plan_is_native(const struct bruckner_plan *plan, int *native);

/*
 Advances all started plans without waiting, and says whether this one is done.

 # Safety
 A plan, and room for an int.
 */
int bruckner_test(struct bruckner_plan *plan, int *done);

/*
 Waits until a plan is done, and advances all others that are started meanwhile.

 # Safety
 A plan.
 */
int bruckner_wait(struct bruckner_plan *plan);

/*
 Starts a plan and waits until it is done: cheaper than the two one after the other.

 # Safety
 As for bruckner_start.
 */
int bruckner_run(struct bruckner_plan *plan);

/*
 Ends a plan that is not active, and sets the pointer to null.

 # Safety
 The address of a plan that a bruckner_*_init gave, or of null.
 */
int bruckner_free(struct bruckner_plan **plan);

/*
 What a code means; never null.
 */
const char *bruckner_error_text(int code);

/*
 What the last failure of this thread was, in words; valid until its next one.
 */
const char *bruckner_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BRUCKNER_H */
