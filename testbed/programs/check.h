/* Header of programs that call the C API. */
#ifndef CHECK_H
#define CHECK_H

#include "bruckner.h"
#include "common.h"

/* A failed call of the library ends the job. */
#define MUST(call)                                                                                          \
  do {                                                                                                      \
    int code_ = (call);                                                                                     \
    if (code_ != 0) {                                                                                       \
      fprintf(stderr, "rank %d of %d: %s: %s (%s)\n", rank, size, #call, bruckner_error_text(code_),        \
              bruckner_last_error());                                                                       \
      MPI_Abort(MPI_COMM_WORLD, 3);                                                                         \
    }                                                                                                       \
  } while (0)

static inline int finish(void) {
  long failed = total();
  bruckner_finalize();
  MPI_Finalize();
  return failed != 0;
}

static inline void begin(int *argc, char ***argv) {
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MUST(bruckner_init());
}

#endif
