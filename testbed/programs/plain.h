/* For programs that know nothing of the library: it is preloaded, or not. The MPI's own functions are found inside the
   MPI's library, where no preloaded one is in the way: NATIVE(Allreduce)(…). */
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
