/* Bruckner in a C program: compile with any mpicc, run with its mpirun.

     mpicc sum.c -Icrates/preload/include -Ltarget/release -lbruckner -o sum
     mpirun -n 4 ./sum */
#include "bruckner.h"
#include <stdio.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (bruckner_init() != 0) {
    fprintf(stderr, "bruckner: %s\n", bruckner_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  /* A blocking call takes the arguments of the MPI function of the same name. */
  double mine = rank + 1, sum = 0;
  bruckner_allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);

  /* A plan is made once and started again and again; naming an algorithm is optional. */
  bruckner_plan *plan;
  double most = 0;
  bruckner_allreduce_init(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, "recursive-doubling", &plan);
  for (int step = 0; step < 10; step++) {
    mine = rank + step;
    bruckner_start(plan);
    /* Work of one's own goes here. */
    bruckner_wait(plan);
  }
  bruckner_free(&plan);

  if (rank == 0) printf("%d ranks: the sum is %g, the greatest is %g\n", size, sum, most);
  int right = sum == size * (size + 1) / 2.0 && most == size - 1 + 9;
  bruckner_finalize();
  MPI_Finalize();
  return !right;
}
