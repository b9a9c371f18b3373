/* Collectives in a loop, with some work between them, for `bruckner compare`.

   worth COLLECTIVE BYTES CALLS WORK: `bcast`, which is passed through to the MPI, or `allreduce`; WORK iterations of an empty loop before each call. */
#include "common.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int count = atoi(argv[2]) / 8, calls = atoi(argv[3]), work = atoi(argv[4]);
  double *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
  for (int call = 0; call < calls; call++) {
    for (volatile int turn = 0; turn < work; turn++) continue;
    if (!strcmp(argv[1], "bcast")) MPI_Bcast(in, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    else MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  return MPI_Finalize();
}
