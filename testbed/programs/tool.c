/* A tool as many: it counts calls of MPI_Allreduce and MPI_Bcast, and passes them on by their other names. Preloaded before the
   library. */
#include <mpi.h>
#include <stdio.h>

static long allreduces, bcasts;

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  allreduces++;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  bcasts++;
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) fprintf(stderr, "tool: %ld allreduces, %ld bcasts\n", allreduces, bcasts);
  return PMPI_Finalize();
}
