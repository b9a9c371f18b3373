/* Collectives through shared memory until rank 1 kills itself. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
  begin(&argc, &argv);
  for (int i = 0;; i++) {
    int64_t in = i, out;
    bruckner_allreduce(&in, &out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (i == 1000 && rank == 1) {
      printf("killing rank 1\n");
      fflush(stdout);
      usleep(100000);
      kill(getpid(), SIGKILL);
    }
  }
}
