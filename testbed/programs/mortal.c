/* Rank 1 is killed in the middle of collectives. The job must end. */
#include "common.h"
#include <signal.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0;; i++) {
    double mine = rank, sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (i == 100 && rank == 0) printf("killing\n"), fflush(stdout);
    if (i == 100 && rank == 1) raise(SIGKILL);
  }
}
