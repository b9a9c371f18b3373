/* Bruckner: MPI collectives with verified schedules. Works with any mpi.h and with the MPI found at run time.

   Every function returns 0, or a code that bruckner_error_text explains; bruckner_last_error has the details.
   Plans: bruckner_*_init makes one, collectively; bruckner_start, bruckner_test and bruckner_wait use it, again and
   again; bruckner_free ends it.

   Progress: a started plan advances while any thread of its process is in bruckner_start, bruckner_test or bruckner_wait of
   any plan, or in a blocking bruckner_* collective that began to wait after it. Calls of MPI do not advance it, and it makes
   no progress on its own. A rank that has started a plan must not wait in MPI for something that another rank sends only after its
   own plan is done.

   Made by cbindgen from crates/preload/src; do not edit. */

#ifndef BRUCKNER_H
#define BRUCKNER_H

#include <mpi.h>
#include <stddef.h>

/*
 A plan: a collective bound to its buffers, which can be run many times.
 */
typedef struct bruckner_plan bruckner_plan;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Initialises the library. Collective over MPI_COMM_WORLD, after MPI_Init. Without this call, each communicator other than MPI_COMM_WORLD
 gets an internal communicator of its own, and the library handles calls only on the first 64 such communicators.
 */
int bruckner_init(void);

/*
 Releases the resources of the library. Collective over MPI_COMM_WORLD, before MPI_Finalize. This call is optional.
 */
int bruckner_finalize(void);

/*
 Sets the algorithms of a communicator from now on, for example "allreduce=locality(node); allgather=sparbit". Collective; all ranks
 must pass the same text.

 # Safety
 `comm` is a valid communicator and `rules` a C string.
 */
int bruckner_set_algorithms(MPI_Comm comm,
                            const char *rules);

/*
 Replaces the topology of a communicator from now on, for example by "4,4,1" or "2x2:cyclic"; for tests and experiments. Collective; all
 ranks must pass the same text. Ranks that the text places on one node must really share a node.

 # Safety
 `comm` is a valid communicator and `topology` a C string.
 */
int bruckner_set_topology(MPI_Comm comm,
                          const char *topology);

/*
 Writes to `algorithm` the algorithm that last ran a collective (for example "allreduce") on a communicator: an expression, "native", or
 an empty string if the collective was not called yet. Does not communicate.

 # Safety
 `comm` is a valid communicator, `collective` a C string, and `algorithm` has room for `length` bytes.
 */
int bruckner_algorithm(MPI_Comm comm,
                       const char *collective,
                       char *algorithm,
                       size_t length);

/*
 Writes the version of the MPI in use, and its family ("MPICH", "Open MPI" or "MPI-5 ABI").

 # Safety
 `version` has room for `version_length` bytes, and `family` for `family_length` bytes.
 */
int bruckner_about(char *version, size_t version_length, char *family, size_t family_length);

/*
 Writes to `value` the value of the constant `name` of mpi.h that the library uses; for tests. Returns 4 if the library does not know
 the constant.

 # Safety
 `name` is a C string, and `value` has room for a long long.
 */
int bruckner_constant(const char *name,
                      long long *value);

/*
 Runs the collective MPI_Allgather. All arguments are those of MPI_Allgather.

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
 Runs the collective MPI_Allgatherv. All arguments are those of MPI_Allgatherv.

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
 Runs the collective MPI_Allreduce. All arguments are those of MPI_Allreduce.

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
 Runs the collective MPI_Reduce_scatter. All arguments are those of MPI_Reduce_scatter.

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
 Runs the collective MPI_Reduce_scatter_block. All arguments are those of MPI_Reduce_scatter_block.

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
 Runs the collective MPI_Alltoall. All arguments are those of MPI_Alltoall.

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
 Runs the collective MPI_Alltoallv. All arguments are those of MPI_Alltoallv.

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
 Runs the collective MPI_Bcast. All arguments are those of MPI_Bcast.

 # Safety
 The arguments are right for MPI_Bcast.
 */
int bruckner_bcast(void *data, int count, MPI_Datatype datatype, int root, MPI_Comm comm);

/*
 Runs the collective MPI_Reduce. All arguments are those of MPI_Reduce.

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
 Runs the collective MPI_Barrier. All arguments are those of MPI_Barrier.

 # Safety
 The arguments are right for MPI_Barrier.
 */
int bruckner_barrier(MPI_Comm comm);

/*
 Makes a plan that runs MPI_Allgather each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Allgatherv each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Allreduce each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Reduce_scatter each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Reduce_scatter_block each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Alltoall each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Alltoallv each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Bcast each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Reduce each time it is started. If `algorithm` is given, it is used, or the call fails;
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
 Makes a plan that runs MPI_Barrier each time it is started. If `algorithm` is given, it is used, or the call fails;
 null or "" leaves the choice to the library. Collective.

 # Safety
 The arguments are right for MPI_Barrier, and stay so as long as the plan is used.
 */
int bruckner_barrier_init(MPI_Comm comm,
                          const char *algorithm,
                          struct bruckner_plan **plan);

/*
 Starts a plan. The plan is active until bruckner_wait returns or bruckner_test reports that it is done. An active plan must not be
 started again or freed, even if this rank has no more work to do for it. Free a plan before its communicator. Ranks may start different
 plans in different orders. Exception: plans that use the MPI's own collectives (bruckner_plan_is_native) must be started in the same
 order on all ranks.

 # Safety
 `plan` is a valid plan, and nothing else uses its buffers until the plan is done.
 */
int bruckner_start(struct bruckner_plan *plan);

/*
 Stores in `native` whether a plan uses the MPI's own collective: 1 if so, otherwise 0.

 # Safety
 `plan` is a valid plan; `native` points to an int or is null.
 */
int bruckner_plan_is_native(const struct bruckner_plan *plan, int *native);

/*
 Advances all started plans without waiting, and stores in `done` whether `plan` is done: 1 if so, otherwise 0.

 # Safety
 `plan` is a valid plan; `done` points to an int or is null.
 */
int bruckner_test(struct bruckner_plan *plan,
                  int *done);

/*
 Waits until a plan is done. All other started plans advance meanwhile.

 # Safety
 `plan` is a valid plan.
 */
int bruckner_wait(struct bruckner_plan *plan);

/*
 Starts a plan and waits until it is done; cheaper than bruckner_start followed by bruckner_wait.

 # Safety
 `plan` is a valid plan, and nothing else uses its buffers until this function returns.
 */
int bruckner_run(struct bruckner_plan *plan);

/*
 Frees a plan that is not active, and sets the pointer to null.

 # Safety
 `plan` is the address of a plan that a bruckner_*_init function made, or the address of a null pointer.
 */
int bruckner_free(struct bruckner_plan **plan);

/*
 Returns the text of an error code. Never returns null.
 */
const char *bruckner_error_text(int code);

/*
 Returns the text of the last error in this thread. The text is valid until the next error in this thread.
 */
const char *bruckner_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BRUCKNER_H */
