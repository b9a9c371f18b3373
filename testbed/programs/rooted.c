/* Roots that run ahead: the root of a broadcast returns before its receivers arrive, contributors to a reduction return before the root
   arrives.

   rooted [ahead]  every root in turn, sizes that change and grow, other collectives in between, late ranks, and communicators that are
                   freed as soon as the root has returned; values are checked in every call. With "ahead" also: no rank waits for
                   ranks that enter the calls only after it has returned.
   rooted time     only the time, in ns, that the root of a broadcast and a contributor to a reduction spend in a call if the others
                   enter each call 5 ms late */
#define _GNU_SOURCE
#include "common.h"
#include <unistd.h>

enum { AHEAD = 60, MOST = 3000 };

static int64_t data[MOST], sums[MOST];

static int64_t value(int root, int call, int i) { return root * 1000003L + call * 7919L + i; }

static void bcast(int root, int count, int call, MPI_Comm comm) {
  int me;
  MPI_Comm_rank(comm, &me);
  for (int i = 0; i < count; i++) data[i] = me == root ? value(root, call, i) : -1;
  MPI_Bcast(data, count, MPI_INT64_T, root, comm);
  int wrong = 0;
  for (int i = 0; i < count; i++) wrong += data[i] != value(root, call, i);
  EXPECT(!wrong, "bcast %d of %d from %d: %d wrong", call, count, root, wrong);
  cases++;
}

static void reduce(int root, int count, int call, MPI_Comm comm) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  for (int i = 0; i < count; i++) data[i] = value(me, call, i), sums[i] = -1;
  if (me == root && call % 3 == 0) {
    memcpy(sums, data, count * sizeof *data);
    MPI_Reduce(MPI_IN_PLACE, sums, count, MPI_INT64_T, MPI_SUM, root, comm);
  } else {
    MPI_Reduce(data, sums, count, MPI_INT64_T, MPI_SUM, root, comm);
  }
  int wrong = 0;
  for (int i = 0; i < count; i++) {
    int64_t sum = 0;
    for (int r = 0; r < n; r++) sum += value(r, call, i);
    wrong += sums[i] != (me == root ? sum : -1);
  }
  EXPECT(!wrong, "reduce %d of %d to %d: %d wrong", call, count, root, wrong);
  cases++;
}

/* Whether the ranks that need nothing from the others get through so many calls before those begin: with "ahead", the others begin
   when they have heard so. */
static int runs_ahead(void (*call)(int, int, int, MPI_Comm), int late, int ahead) {
  for (int i = 0; i < 3 * AHEAD; i++) call(0, 1, i, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  int through = 1;
  for (int other = 0; ahead && late && other < size; other++)
    if (call == bcast ? other == 0 : other != 0) through &= hears_from(other, 1);
  for (int i = 0; i < AHEAD; i++) call(0, 1, i, MPI_COMM_WORLD);
  for (int other = 0; ahead && !late && other < size; other++)
    if (call == bcast ? other != 0 : other == 0) MPI_Send(0, 0, MPI_BYTE, other, 1, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  return through;
}

/* The mean time of 50 calls, on a rank that needs nothing from those that are late to each. */
static double mean(int reduces) {
  int late = reduces ? rank == 0 : rank != 0;
  double sum = 0;
  int64_t mine = rank, out = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 60; i++) {
    if (late && i >= 10) usleep(5000);
    double start = MPI_Wtime();
    if (reduces) MPI_Reduce(&mine, &out, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    else MPI_Bcast(&out, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (i >= 10) sum += MPI_Wtime() - start;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return sum / 50 * 1e9;
}

static void times(void) {
  for (int i = 0; i < 5; i++)
    for (int reduces = 0; reduces < 2; reduces++) {
      double took = mean(reduces);
      if (rank == reduces) printf("roots %s %.0f\n", reduces ? "reduce" : "bcast", took);
    }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && !strcmp(argv[1], "time")) {
    times();
    return MPI_Finalize();
  }
  int must = argc > 1 && !strcmp(argv[1], "ahead");

  EXPECT(runs_ahead(bcast, rank != 0, must), "the root of a broadcast waits for late ranks");
  EXPECT(runs_ahead(reduce, rank == 0, must), "a rank waits for the root of its reduction");

  /* Far more calls ahead than a ring has slots. */
  for (int late = 0; late < size; late++) {
    if (rank == late) usleep(3000);
    for (int i = 0; i < 300; i++) bcast((late + 1) % size, 2, i, MPI_COMM_WORLD);
    if (rank == late) usleep(3000);
    for (int i = 0; i < 300; i++) reduce(late, 2, i, MPI_COMM_WORLD);
  }

  /* Everything in turn. */
  static const int COUNTS[] = {1, 5, 6, 7, 0, 100, 3, 700, 1, MOST, 2};
  unsigned seed = 7;
  for (int i = 0; i < 3000; i++) {
    seed = seed * 1103515245u + 12345u;
    int by = (seed >> 16) % size, count = COUNTS[(seed >> 8) % (i < 1500 ? 7 : 11)];
    if ((seed >> 12) % 97 == 0 && rank == (int)((seed >> 20) % size)) usleep(200);
    switch ((seed >> 24) % 8) {
    case 0: case 1: case 2: bcast(by, count, i, MPI_COMM_WORLD); break;
    case 3: case 4: case 5: reduce(by, count, i, MPI_COMM_WORLD); break;
    case 6: {
      int64_t mine = rank + i, sum;
      MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      EXPECT(sum == (int64_t)size * i + (int64_t)size * (size - 1) / 2, "allreduce %d", i);
      break;
    }
    case 7: MPI_Barrier(MPI_COMM_WORLD); break;
    }
  }

  /* Freed while others are still in the last call. */
  for (int i = 0; i < 60; i++) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? 0 : rank % 2, i % 2 ? rank : -rank, &comm);
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    if (me != i % n) usleep(100);
    for (int call = 0; call < 12; call++) {
      bcast(i % n, 3, call, comm);
      reduce((i + 1) % n, 3, call, comm);
    }
    bcast(i % n, 4, i, comm);
    MPI_Comm_free(&comm);
  }
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
