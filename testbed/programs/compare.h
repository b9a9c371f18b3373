/* Compares A with B in one run, on the same buffers, in blocks of random order. A block's time is the slowest rank's. Rank 0
   prints
     compare NAME BYTES A_NS B_NS RATIO LOW HIGH
   where RATIO is the median over pairs of blocks of A's time by B's, and LOW to HIGH its 95 % interval (by order
   statistics). */
#ifndef COMPARE_H
#define COMPARE_H

#include "check.h"
#include <time.h>

typedef void (*work)(void);

/* What a program does before a pair of blocks. */
#ifndef MOVE
#define MOVE(block)
#endif

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

/* As many pairs of blocks; fewer where ranks share cores, because there a call takes milliseconds. */
enum { MOST_BLOCKS = 101 };
static int BLOCKS = MOST_BLOCKS;

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Both sides start from the same barrier, one whose exits lie close together also where ranks share cores. */
static double block_time(work run, int calls) {
  bruckner_barrier(MPI_COMM_WORLD);
  double start = now();
  for (int i = 0; i < calls; i++) run();
  double mine = (now() - start) / calls, most;
  PMPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

/* Calls in a block, so that it takes about so long. */
static int calls_for(work run, double nanoseconds) {
  for (int i = 0; i < (size > 2 ? 5 : 100); i++) run();
  int calls = nanoseconds / (block_time(run, 10) + 1);
  return calls < 20 ? 20 : calls > 20000 ? 20000 : calls;
}

/* Prints what blocks say. */
static void tell(const char *name, size_t bytes, double *ratios, double *times_a, double *times_b) {
  qsort(ratios, BLOCKS, sizeof(double), by_size);
  qsort(times_a, BLOCKS, sizeof(double), by_size);
  qsort(times_b, BLOCKS, sizeof(double), by_size);
  /* Of 101 values the median lies between the 41st and the 61st with 95 %, of 25 between the 8th and the 18th. */
  int low = BLOCKS == MOST_BLOCKS ? 40 : 7, high = BLOCKS - 1 - low;
  if (rank == 0)
    printf("compare %s %zu %.1f %.1f %.4f %.4f %.4f\n", name, bytes, times_a[BLOCKS / 2], times_b[BLOCKS / 2],
           ratios[BLOCKS / 2], ratios[low], ratios[high]);
  fflush(stdout);
}

static void compare(const char *name, size_t bytes, work a, work b, double nanoseconds) {
  static double ratios[MOST_BLOCKS], times_a[MOST_BLOCKS], times_b[MOST_BLOCKS];
  if (size > 2) BLOCKS = 25;
  int calls = calls_for(a, nanoseconds), other = calls_for(b, nanoseconds);
  if (other < calls) calls = other;
  PMPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  unsigned seed = 12345 + bytes;
  for (int i = 0; i < BLOCKS; i++) {
    MOVE(i);
    seed = seed * 1103515245 + 12345;
    if (seed >> 16 & 1) {
      times_a[i] = block_time(a, calls);
      times_b[i] = block_time(b, calls);
    } else {
      times_b[i] = block_time(b, calls);
      times_a[i] = block_time(a, calls);
    }
    ratios[i] = times_a[i] / times_b[i];
  }
  tell(name, bytes, ratios, times_a, times_b);
}

#endif
