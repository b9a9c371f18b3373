/* One communicator with processes of two MPI_COMM_WORLDs, of which the second may lack the library, because some launchers do
   not pass LD_PRELOAD on to spawned processes. */
#include "plain.h"

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm parent, inter, merged;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
  else inter = parent;
  MPI_Intercomm_merge(inter, parent != MPI_COMM_NULL, &merged);
  MPI_Comm_rank(merged, &rank);
  MPI_Comm_size(merged, &size);
  for (int again = 0; again < 20; again++) {
    int64_t mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, merged);
    EXPECT(size == 2 && sum == 3, "%d processes: the sum is %ld", size, (long)sum);
    MPI_Barrier(merged);
    MPI_Barrier(inter);
    cases++;
  }
  if (rank == 0) printf("cases %ld failures %ld\n", cases, failures);
  fflush(stdout);
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&inter);
  MPI_Finalize();
  return failures != 0;
}
