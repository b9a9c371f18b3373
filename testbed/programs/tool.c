/* A typical profiling tool: counts MPI_* calls and forwards them to PMPI_*. It is preloaded before the library or after it. */
#ifdef BYPASS
#define _GNU_SOURCE
#include <dlfcn.h>
#endif
#include <mpi.h>
#include <stdio.h>

#ifdef BYPASS
/* Behind the library it looks the next functions up itself. */
#define PMPI_Init(...) ((__typeof__(&MPI_Init))dlsym(RTLD_NEXT, "MPI_Init"))(__VA_ARGS__)
#define PMPI_Allreduce(...) ((__typeof__(&MPI_Allreduce))dlsym(RTLD_NEXT, "MPI_Allreduce"))(__VA_ARGS__)
#endif

static long inits, allreduces, bcasts, waits, duplicates;

int MPI_Init(int *argc, char ***argv) {
  inits++;
  return PMPI_Init(argc, argv);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  allreduces++;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  bcasts++;
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
  waits++;
  return PMPI_Wait(request, status);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made) {
  duplicates++;
  return PMPI_Comm_dup(comm, made);
}

int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    fprintf(stderr, "tool: %ld inits, %ld allreduces, %ld bcasts, %ld waits, %ld duplicates\n", inits, allreduces, bcasts, waits,
            duplicates);
  return PMPI_Finalize();
}
