/* stack KIB: runs the first use of a communicator, every kind of collective, persistent ones and MPI_Finalize with its report in a
   thread with a stack of KIB. */
#include <pthread.h>
#include "common.h"

static long in[20000], out[80000];

static void *run(void *unused) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < 3; round++) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, round == 1 ? rank / 2 : 0, -rank, &comm);
    int me, n, counts[16], at[16], total = 0;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int i = 0; i < n; i++) counts[i] = i + 1, at[i] = total, total += counts[i];
    for (int call = 0; call < 8; call++) {
      double mine = me, sum = -1;
      MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
      EXPECT(sum == n * (n - 1) / 2.0, "the sum is %g", sum);
      for (int i = 0; i < 20000; i++) in[i] = me + i;
      MPI_Allreduce(in, out, 3000 * (call + 1) % 19999, MPI_LONG, MPI_SUM, comm);
      EXPECT(out[1] == n + n * (n - 1) / 2, "the sum is %ld", out[1]);
      MPI_Allgather(in, 50, MPI_LONG, out, 50, MPI_LONG, comm);
      EXPECT(out[50 * (n - 1)] == n - 1, "a block is %ld", out[50 * (n - 1)]);
      MPI_Allgatherv(in, counts[me], MPI_LONG, out, counts, at, MPI_LONG, comm);
      EXPECT(out[at[n - 1]] == n - 1, "a block is %ld", out[at[n - 1]]);
      MPI_Reduce_scatter(in, out, counts, MPI_LONG, MPI_SUM, comm);
      EXPECT(out[0] == (long)n * at[me] + n * (n - 1) / 2, "the sum is %ld", out[0]);
      MPI_Reduce_scatter_block(in, out, 3, MPI_LONG, MPI_SUM, comm);
      MPI_Alltoall(in, 3, MPI_LONG, out, 3, MPI_LONG, comm);
      EXPECT(out[3 * (n - 1)] == n - 1 + 3 * me, "a block is %ld", out[3 * (n - 1)]);
      MPI_Bcast(out, 100, MPI_LONG, n - 1, comm);
      MPI_Reduce(in, out, 100, MPI_LONG, MPI_SUM, 0, comm);
      MPI_Barrier(comm);
      cases++;
    }
#if MPI_VERSION >= 4
    for (int call = 0; call < 3; call++) {
      MPI_Request request;
      MPI_Status status;
      MPI_Allreduce_init(in, out, 10 + call, MPI_LONG, MPI_SUM, comm, MPI_INFO_NULL, &request);
      for (int start = 0; start < 3; start++) {
        out[1] = -1;
        MPI_Start(&request);
        MPI_Wait(&request, &status);
        EXPECT(out[1] == n + n * (n - 1) / 2, "the sum is %ld", out[1]);
      }
      MPI_Request_free(&request);
      cases++;
    }
#endif
    MPI_Comm_free(&comm);
  }
  failures = total();
  MPI_Finalize();
  return 0;
}

int main(int argc, char **argv) {
  int given;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &given);
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  if (argc < 2 || pthread_attr_setstacksize(&small, 1024 * atoi(argv[1]))) return 2;
  if (pthread_create(&thread, &small, run, 0)) return 3;
  pthread_join(thread, 0);
  return failures != 0;
}
