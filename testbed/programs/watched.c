/* watched CALLS: thousands of calls of a few kinds during online tuning. Results stay right whichever algorithm is used, with
   late ranks, calls of other sizes in between, other communicators at the same time, and messages in flight. Floating-point
   sums have the same bits in every call. */
#include "common.h"

static unsigned seed = 1;
static unsigned next(unsigned below) {
  seed = seed * 1103515245u + 12345u;
  return (seed >> 16) % below;
}

static void gather(MPI_Comm comm, int count, int call) {
  static int in[4096], out[64 * 4096];
  int me, all;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &all);
  for (int i = 0; i < count; i++) in[i] = call * 31 + me * 7 + i;
  MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
  int wrong = 0;
  for (int r = 0; r < all; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != call * 31 + r * 7 + i;
  EXPECT(wrong == 0, "allgather of %d, call %d: %d wrong", count, call, wrong);
  cases++;
}

static void swap(MPI_Comm comm, int count, int call) {
  static int in[64 * 64], out[64 * 64];
  int me, all;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &all);
  for (int r = 0; r < all; r++)
    for (int i = 0; i < count; i++) in[r * count + i] = call + me * 1000 + r * 10 + i;
  MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm);
  int wrong = 0;
  for (int r = 0; r < all; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != call + r * 1000 + me * 10 + i;
  EXPECT(wrong == 0, "alltoall, call %d: %d wrong", call, wrong);
  cases++;
}

static void sum(MPI_Comm comm, int call) {
  int me, all;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &all);
  long in[3] = {call, me, 1}, out[3];
  MPI_Allreduce(in, out, 3, MPI_LONG, MPI_SUM, comm);
  EXPECT(out[0] == (long)call * all && out[1] == (long)all * (all - 1) / 2 && out[2] == all, "sum, call %d", call);
  cases++;
}

static double before;
static void rounded(MPI_Comm comm, int call) {
  double in = 1.0 / (3 + rank), out;
  MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comm);
  if (call == 0) before = out;
  EXPECT(memcmp(&out, &before, sizeof out) == 0, "a sum has other bits in call %d", call);
  cases++;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int calls = argc > 1 ? atoi(argv[1]) : 2000;
  MPI_Comm half, again;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &again);
  for (int call = 0; call < calls; call++) {
    /* All ranks throw the same. */
    unsigned other = next(10), late = next(40);
    if ((int)late == rank) {
      double until = MPI_Wtime() + 200e-6;
      while (MPI_Wtime() < until) continue;
    }
    int token = call, got = -1;
    MPI_Request requests[2];
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&token, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[1]);
    gather(MPI_COMM_WORLD, 16, call);
    if (other == 0) gather(MPI_COMM_WORLD, 17 + call % 5, call);
    if (other == 1) gather(MPI_COMM_WORLD, 2000, call);
    sum(MPI_COMM_WORLD, call);
    rounded(MPI_COMM_WORLD, call);
    if (rank % 2) gather(half, 16, call), swap(half, 8, call);
    else swap(half, 8, call), swap(half, 8, call + 1);
    swap(again, 4, call);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EXPECT(got == call, "a message, call %d", call);
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&again);
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
