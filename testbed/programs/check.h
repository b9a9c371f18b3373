/* What the test programs share: complaints, buffers with canaries, and references by PMPI_*. */
#ifndef CHECK_H
#define CHECK_H

#include "bruckner.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static long cases, failures;

/* A failed condition is counted and told once a rank; a failed call of the library ends the job. */
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

#define MUST(call)                                                                                          \
  do {                                                                                                      \
    int code_ = (call);                                                                                     \
    if (code_ != 0) {                                                                                       \
      fprintf(stderr, "rank %d of %d: %s: %s (%s)\n", rank, size, #call, bruckner_error_text(code_),        \
              bruckner_last_error());                                                                       \
      MPI_Abort(MPI_COMM_WORLD, 3);                                                                         \
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

/* The sum of all failures; rank 0 prints the line that the testbed reads. */
static inline int finish(void) {
  long total[2] = {failures, cases}, sum[2];
  PMPI_Allreduce(total, sum, 2, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("cases %ld failures %ld\n", sum[1], sum[0]);
  fflush(stdout);
  bruckner_finalize();
  MPI_Finalize();
  return sum[0] != 0;
}

static inline void begin(int *argc, char ***argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MUST(bruckner_init());
}

#endif
