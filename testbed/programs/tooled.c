/* What a tool watches: 100 allreduces and 50 bcasts. */
#include "common.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 100; i++) {
    int mine = rank + i, sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(sum == size * (size - 1) / 2 + size * i, "the sum is %d", sum);
    if (i % 2) MPI_Bcast(&sum, 1, MPI_INT, i % size, MPI_COMM_WORLD);
    cases++;
  }
  if (rank == 0) printf("cases %ld failures %ld\n", cases, failures);
  MPI_Finalize();
  return failures != 0;
}
