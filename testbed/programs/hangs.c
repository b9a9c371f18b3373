/* Legal programs that hang where a wait of the library does not advance MPI, where a started request is advanced only by
   its own wait, or where a lock is held across a wait. Two ranks.

   1. Irecv, collective, Wait against Send, collective: every collective, 1 kB, 1 MB, 8 MiB.
   2. Persistent: Start, Recv, Wait against Start, Wait, Send.
   3. Persistent: starts in opposite orders, waits in all orders.
   4. Two threads, each with collectives on its own communicator, in opposite order of time.
   5. Two threads make requests on two communicators; the other rank makes them one after the other. */
#include "plain.h"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#include <pthread.h>
#include <unistd.h>
#ifdef OPEN_MPI
#if OMPI_MAJOR_VERSION < 5
#include "extensions.h"
#endif
#endif

static int64_t in[64], out[64];

static void collective(int which, MPI_Comm comm) {
  int counts[2] = {1, 1}, displacements[2] = {0, 1};
  switch (which) {
  case 0: MPI_Allgather(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, comm); break;
  case 1: MPI_Allgatherv(in, 1, MPI_INT64_T, out, counts, displacements, MPI_INT64_T, comm); break;
  case 2: MPI_Allreduce(in, out, 1, MPI_INT64_T, MPI_SUM, comm); break;
  case 3: MPI_Reduce_scatter_block(in, out, 1, MPI_INT64_T, MPI_SUM, comm); break;
  case 4: MPI_Reduce_scatter(in, out, counts, MPI_INT64_T, MPI_SUM, comm); break;
  case 5: MPI_Alltoall(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, comm); break;
  case 6: MPI_Alltoallv(in, counts, displacements, MPI_INT64_T, out, counts, displacements, MPI_INT64_T, comm); break;
  case 7: MPI_Barrier(comm); break;
  /* A bcast or reduce need not synchronise: both ranks wait for one of each. */
  default: MPI_Bcast(in, 1, MPI_INT64_T, 0, comm), MPI_Bcast(out, 1, MPI_INT64_T, 1, comm);
  }
}

static void *thread(void *argument) {
  MPI_Comm comm = *(MPI_Comm *)argument;
  for (int i = 0; i < 2000; i++) {
    int64_t mine = i, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, comm);
    if (sum != 2 * i) *(volatile char *)0 = 1;
    if (i % 16 == 0) MPI_Barrier(comm);
  }
  return 0;
}

static MPI_Comm made_on[2];
static MPI_Request made[2];
static int64_t made_in[2], made_out[2];

static void *make(void *argument) {
  int which = *(int *)argument;
  /* The first waits for the other rank, which waits for the second. */
  usleep(which ? 100000 : 0);
  MPI_Allreduce_init(&made_in[which], &made_out[which], 1, MPI_INT64_T, MPI_SUM, made_on[which], MPI_INFO_NULL, &made[which]);
  return 0;
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  static char message[8 << 20];
  static const int SIZES[] = {1000, 1000000, 8 << 20};
  for (int which = 0; which < 9; which++)
    for (int i = 0; i < 3; i++)
      for (int again = 0, bytes = SIZES[i]; again < 3; again++) {
        /* The plan is there before the test: making one is a native collective, which advances MPI itself. */
        for (int warm = 0; warm < 5; warm++) collective(which, MPI_COMM_WORLD);
        MPI_Request request;
        memset(message, rank, bytes);
        if (rank == 0) MPI_Irecv(message, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
        if (rank == 1) MPI_Send(message, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD);
        collective(which, MPI_COMM_WORLD);
        if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT(rank != 0 || message[bytes - 1] == 1, "the message did not arrive");
        cases++;
      }
  if (rank == 0) fprintf(stderr, "persistent\n");
  MPI_Request a, b;
  int64_t a_in = rank, a_out, b_in = 10 * rank, b_out[2];
  MPI_Allreduce_init(&a_in, &a_out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &a);
  MPI_Allgather_init(&b_in, 1, MPI_INT64_T, b_out, 1, MPI_INT64_T, MPI_COMM_WORLD, MPI_INFO_NULL, &b);
  for (int again = 0; again < 100; again++) {
    a_out = -1;
    /* The one that will be in MPI_Recv starts first, and finds nothing there yet. */
    if (rank != again % 2) usleep(500);
    MPI_Start(&a);
    /* By turns, so that each rank is once the one whose plan must go on inside MPI_Recv. */
    if (rank == again % 2) {
      MPI_Recv(message, SIZES[again % 3], MPI_BYTE, 1 - rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Wait(&a, MPI_STATUS_IGNORE);
    } else {
      MPI_Wait(&a, MPI_STATUS_IGNORE);
      MPI_Send(message, SIZES[again % 3], MPI_BYTE, 1 - rank, 6, MPI_COMM_WORLD);
    }
    EXPECT(a_out == 1, "a persistent sum of 0 and 1 is %ld", (long)a_out);
    cases++;
  }
  for (int again = 0; again < 200; again++) {
    a_out = b_out[0] = b_out[1] = -1;
    MPI_Request *first = rank ? &a : &b, *second = rank ? &b : &a;
    MPI_Start(first);
    MPI_Start(second);
    if (again % 3 == 0) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Wait(again % 2 ? first : second, MPI_STATUS_IGNORE);
    MPI_Wait(again % 2 ? second : first, MPI_STATUS_IGNORE);
    EXPECT(a_out == 1 && b_out[0] == 0 && b_out[1] == 10, "starts in opposite orders");
    cases++;
  }
  MPI_Request_free(&a);
  MPI_Request_free(&b);
  int level;
  MPI_Query_thread(&level);
  EXPECT(level == MPI_THREAD_MULTIPLE, "threads are not allowed");
  MPI_Comm comms[2];
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  if (rank == 0) fprintf(stderr, "threads\n");
  pthread_t threads[2];
  /* The ranks start them in opposite order. */
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, thread, &comms[rank ? 1 - i : i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  cases++;
  if (rank == 0) fprintf(stderr, "requests by threads\n");
  static int which[2] = {0, 1};
  for (int i = 0; i < 2; i++) made_on[i] = comms[i], made_in[i] = rank + i;
  if (rank == 0) {
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, make, &which[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  } else usleep(200000), make(&which[1]), make(&which[0]);
  MPI_Startall(2, made);
  MPI_Waitall(2, made, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 2; i++) {
    EXPECT(made_out[i] == 1 + 2 * i, "a request made by a thread: the sum is %ld", (long)made_out[i]);
    MPI_Request_free(&made[i]);
  }
  cases++;
  MPI_Comm_free(&comms[0]);
  MPI_Comm_free(&comms[1]);
  return finish();
}
