/* How long calls take after so many have been made, and all of them.

   watching COLLECTIVE BYTES BEFORE AFTER: makes calls, then measures as many as are asked for. Rank 0 prints the microseconds of one of
   these, and of one of all. Calls move data, or add integers: what serves them may change. */
#include "common.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char *what = argv[1];
  int bytes = atoi(argv[2]), before = atoi(argv[3]), after = atoi(argv[4]), count = bytes / 8;
  long *in = calloc(size, bytes), *out = calloc(size, bytes);
  double start = 0, middle = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  for (int call = 0; call < before + after; call++) {
    if (call == before) MPI_Barrier(MPI_COMM_WORLD), middle = MPI_Wtime();
    if (!strcmp(what, "allgather")) MPI_Allgather(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
    else if (!strcmp(what, "alltoall")) MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
    else if (!strcmp(what, "allreduce")) MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    else MPI_Reduce_scatter_block(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  }
  double end = MPI_Wtime(), mine[2] = {(end - middle) / after, (end - start) / (before + after)}, most[2];
  MPI_Reduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("took %.3f %.3f\n", most[0] * 1e6, most[1] * 1e6);
  return MPI_Finalize();
}
