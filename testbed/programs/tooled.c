/* A program for a profiling tool to count: 100 allreduces, 50 broadcasts, 10 waits for messages, and one duplicate of a
   communicator. */
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
  for (int i = 0; i < 10; i++) {
    int mine = rank + i, theirs = -1;
    MPI_Request request;
    MPI_Status status;
    MPI_Isend(&mine, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, &request);
    MPI_Recv(&theirs, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, &status);
    EXPECT(theirs == (rank + size - 1) % size + i, "a message is %d", theirs);
  }
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_free(&copy);
  if (rank == 0) printf("cases %ld failures %ld\n", cases, failures);
  MPI_Finalize();
  return failures != 0;
}
