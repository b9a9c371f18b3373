/* counted refused|spawned: calls that the library counts for a report on every rank. With `refused`, one rank also makes calls
   that the MPI refuses before it communicates; with `spawned`, some ranks belong to another MPI_COMM_WORLD. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static long wrong(MPI_Comm comm, int calls, int refused) {
  int rank, size, differences = 0, all = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  for (int call = 0; call < calls; call++) {
    int mine = rank + call, sum = -1;
    if (refused && rank == 0 && call % 10 == 2) {
      differences += MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_OP_NULL, comm) == MPI_SUCCESS;
    }
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    differences += sum != size * (size - 1) / 2 + size * call;
  }
  MPI_Allreduce(&differences, &all, 1, MPI_INT, MPI_SUM, comm);
  return all;
}

int main(int count, char **words) {
  MPI_Comm parent, other, all = MPI_COMM_WORLD;
  int rank;
  long failures;
  MPI_Init(&count, &words);
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL || (count > 1 && strcmp(words[1], "spawned") == 0)) {
    other = parent;
    if (parent == MPI_COMM_NULL) {
      MPI_Comm_spawn(words[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    }
    MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
    failures = wrong(all, 200, 0);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&other);
  } else {
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    failures = wrong(all, 200, 1);
    MPI_Comm_rank(all, &rank);
  }
  if (rank == 0) {
    printf("cases 200 failures %ld\n", failures);
  }
  MPI_Finalize();
  return failures != 0;
}
