/* Header of programs that do not use the library's API and run with or without it. NATIVE(Allreduce)(…) calls the MPI's own function,
   which is looked up in the MPI's library, past any preloaded one. */
#ifndef PLAIN_H
#define PLAIN_H

#define _GNU_SOURCE
#include <dlfcn.h>

#include "common.h"

static inline void *native_symbol(const char *name) {
  static void *library;
  if (!library) {
    Dl_info info;
    /* A function that nobody takes over. */
    if (!dladdr(dlsym(RTLD_DEFAULT, "MPI_Comm_rank"), &info)) abort();
    library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  }
  void *found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s is not there\n", name), abort();
  return found;
}

#define NATIVE(name)                                                                                        \
  ({                                                                                                        \
    static __typeof__(&PMPI_##name) found_;                                                                 \
    if (!found_) found_ = (__typeof__(found_))native_symbol("PMPI_" #name);                                 \
    found_;                                                                                                 \
  })

static inline void begin(int *argc, char ***argv) {
  int given;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static inline int finish(void) {
  long failed = total();
  MPI_Finalize();
  return failed != 0;
}

#endif
