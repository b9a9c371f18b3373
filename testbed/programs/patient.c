/* Preloaded for Debian's MPICH where ranks outnumber cores: makes its spinning progress function sleep briefly when idle.
   Affects only the time that tests take. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker) {
  static unsigned (*real)(void *);
  static _Thread_local unsigned idle;
  if (!real) real = dlsym(RTLD_NEXT, "ucp_worker_progress");
  unsigned events = real(worker);
  if (events) idle = 0;
  else if (++idle > 200) {
    struct timespec pause = {0, 50000};
    nanosleep(&pause, 0);
  }
  return events;
}
