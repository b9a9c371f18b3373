/* Two threads on two communicators under MPI_THREAD_MULTIPLE; and communicators first used by both at the same time.

   usage: threads CALLS */
#include "check.h"
#include <pthread.h>

static int calls;
static MPI_Comm comms[2], fresh[2][20];

static void *run(void *which) {
  int t = (int)(intptr_t)which;
  for (int i = 0; i < 20; i++) {
    int64_t in = rank, out = -1;
    MUST(bruckner_allreduce(&in, &out, 1, MPI_INT64_T, MPI_MAX, fresh[t][i]));
    EXPECT(out == size - 1, "thread %d: a wrong maximum on a new communicator", t);
  }
  for (int i = 0; i < calls; i++) {
    int64_t in[2] = {rank + i, t}, out[2] = {-1, -1};
    MUST(bruckner_allreduce(in, out, 2, MPI_INT64_T, MPI_SUM, comms[t]));
    int64_t want = (int64_t)size * (size - 1) / 2 + (int64_t)size * i;
    EXPECT(out[0] == want && out[1] == (int64_t)size * t, "thread %d, call %d: %ld, %ld", t, i, (long)out[0], (long)out[1]);
  }
  return NULL;
}

/* What one thread remembers of a choice must not outlive it: here a thread of rank 0 remembers `native`, and rank 1 calls from
   another. */
static void *large(void *comm) {
  static double in[100000], out[100000];
  for (int i = 0; i < 3; i++) MUST(bruckner_allreduce(in, out, 100000, MPI_DOUBLE, MPI_SUM, *(MPI_Comm *)comm));
  return NULL;
}

static pthread_barrier_t step;

static void *second(void *comm) {
  large(comm);
  pthread_barrier_wait(&step);
  /* The first thread changes the choice. */
  pthread_barrier_wait(&step);
  if (rank == 0) large(comm);
  return NULL;
}

static void change_of_mind(void) {
  pthread_t other;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MUST(bruckner_set_algorithms(comm, "allreduce=native"));
  pthread_barrier_init(&step, NULL, 2);
  pthread_create(&other, NULL, second, &comm);
  pthread_barrier_wait(&step);
  MUST(bruckner_set_algorithms(comm, "allreduce=recursive-doubling"));
  pthread_barrier_wait(&step);
  if (rank != 0) large(&comm);
  pthread_join(other, NULL);
  MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MUST(bruckner_init());
  EXPECT(provided == MPI_THREAD_MULTIPLE, "no MPI_THREAD_MULTIPLE");
  calls = atoi(argv[1]);
  for (int t = 0; t < 2; t++) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    for (int i = 0; i < 20; i++) MPI_Comm_dup(MPI_COMM_WORLD, &fresh[t][i]);
  }
  pthread_t other;
  pthread_create(&other, NULL, run, (void *)(intptr_t)1);
  run((void *)0);
  pthread_join(other, NULL);
  change_of_mind();
  cases = 2L * calls;
  return finish();
}
