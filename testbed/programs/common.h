/* Shared by all test programs: failed expectations, and buffers with canaries. */
#ifndef COMMON_H
#define COMMON_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((unused)) static int rank, size;
__attribute__((unused)) static long cases, failures;

/* A failed condition is counted, and told for the first few. */
#define EXPECT(condition, ...)                                                                              \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      if (failures++ < 3) {                                                                                 \
        fprintf(stderr, "rank %d of %d: ", rank, size);                                                     \
        fprintf(stderr, __VA_ARGS__);                                                                       \
        fprintf(stderr, "\n");                                                                              \
      }                                                                                                     \
    }                                                                                                       \
  } while (0)

enum { CANARY = 64 };

/* So many bytes with a canary before and after. */
static inline char *guarded(size_t bytes) {
  char *whole = malloc(bytes + 2 * CANARY);
  memset(whole, 0x5a, bytes + 2 * CANARY);
  return whole + CANARY;
}

static inline int is_intact(const char *buffer, size_t bytes) {
  for (int i = 1; i <= CANARY; i++)
    if (buffer[-i] != 0x5a || buffer[bytes + i - 1] != 0x5a) return 0;
  return 1;
}

static inline void unguard(char *buffer) { free(buffer - CANARY); }

/* Whether a message of another rank comes, within a time that no machine needs for it. */
__attribute__((unused)) static int hears_from(int other, int tag) {
  double start = MPI_Wtime();
  for (int there = 0; MPI_Wtime() - start < 60;) {
    MPI_Iprobe(other, tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (!there) continue;
    MPI_Recv(0, 0, MPI_BYTE, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 1;
  }
  return 0;
}

/* The sum of all failures; rank 0 prints the line that the testbed reads. */
static inline long total(void) {
  long mine[2] = {failures, cases}, most[2];
  PMPI_Allreduce(mine, most, 2, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("cases %ld failures %ld\n", most[1], most[0]);
  fflush(stdout);
  return most[0];
}

#endif
