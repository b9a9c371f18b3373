/* Preloaded for Debian's MPICH 4 with UCX, where ranks outnumber cores and on emulated nodes. Changes no result of a program.

   MPICH's progress function spins; here it sleeps briefly when idle.

   MPICH's MPI_Finalize can hang between nodes, with and without Bruckner: a rank that has closed its connections waits for the others
   in a PMI barrier, which reads from the process manager, and no longer makes the progress without which another rank cannot close
   its connections. Here such a read makes progress until data arrive. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

/* This thread's latest worker, whether it is making progress now, and whether MPI_Finalize is closing its connections. */
static _Thread_local void *latest;
static _Thread_local int progressing, closing;

unsigned ucp_worker_progress(void *worker) {
  static unsigned (*real)(void *);
  static _Thread_local unsigned idle;
  if (!real) real = dlsym(RTLD_NEXT, "ucp_worker_progress");
  latest = worker;
  progressing = 1;
  unsigned events = real(worker);
  progressing = 0;
  if (events) idle = 0;
  else if (++idle > 200) {
    struct timespec pause = {0, 50000};
    nanosleep(&pause, 0);
  }
  return events;
}

void *ucp_disconnect_nb(void *endpoint) {
  static void *(*real)(void *);
  if (!real) real = dlsym(RTLD_NEXT, "ucp_disconnect_nb");
  closing = 1;
  return real(endpoint);
}

void ucp_worker_destroy(void *worker) {
  static void (*real)(void *);
  if (!real) real = dlsym(RTLD_NEXT, "ucp_worker_destroy");
  closing = 0;
  real(worker);
}

ssize_t read(int file, void *buffer, size_t bytes) {
  static ssize_t (*real)(int, void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "read");
  struct pollfd arrival = {file, POLLIN, 0};
  while (closing && latest && !progressing && !poll(&arrival, 1, 1)) ucp_worker_progress(latest);
  return real(file, buffer, bytes);
}
