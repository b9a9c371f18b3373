/* Overhead of executing a plan: compares it with a hand-written loop of the same algorithm on the same MPI. */
#include "compare.h"

static MPI_Comm comm;
static char *in, *out, *temporary;
static int bytes;
static bruckner_plan *plan;

static void run_plan(void) { bruckner_run(plan); }

/* Bruck's allgather. */
static void bruck(void) {
  memcpy(temporary, in, bytes);
  for (int have = 1, tag = 0; have < size; tag++) {
    int blocks = have < size - have ? have : size - have;
    int to = (rank - have + size) % size, from = (rank + have) % size;
    MPI_Request requests[2];
    MPI_Irecv(temporary + (size_t)have * bytes, blocks * bytes, MPI_BYTE, from, tag, comm, &requests[0]);
    MPI_Isend(temporary, blocks * bytes, MPI_BYTE, to, tag, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    have += blocks;
  }
  memcpy(out + (size_t)rank * bytes, temporary, (size_t)(size - rank) * bytes);
  memcpy(out, temporary + (size_t)(size - rank) * bytes, (size_t)rank * bytes);
}

/* Recursive doubling for a power of two. */
static void doubling(void) {
  int n = bytes / sizeof(double);
  double *sum = (double *)out, *other = (double *)temporary;
  memcpy(sum, in, bytes);
  for (int distance = 1; distance < size; distance *= 2) {
    int peer = rank ^ distance;
    MPI_Request requests[2];
    MPI_Irecv(other, bytes, MPI_BYTE, peer, distance, comm, &requests[0]);
    MPI_Isend(sum, bytes, MPI_BYTE, peer, distance, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++) sum[i] += other[i];
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  static const int SIZES[] = {8, 1024, 65536};
  for (int i = 0; i < 3; i++) {
    bytes = SIZES[i];
    in = guarded(bytes), out = guarded((size_t)size * bytes), temporary = guarded((size_t)size * bytes);
    for (int k = 0; k < bytes / 8; k++) ((double *)in)[k] = rank + k;
    MUST(bruckner_allgather_init(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD, "bruck(2)", &plan));
    compare("allgather:bruck(2)", bytes, run_plan, bruck, 2e6);
    MUST(bruckner_free(&plan));
    MUST(bruckner_allreduce_init(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, "recursive-doubling", &plan));
    compare("allreduce:recursive-doubling", bytes, run_plan, doubling, 2e6);
    MUST(bruckner_free(&plan));
    unguard(in), unguard(out), unguard(temporary);
  }
  MPI_Comm_free(&comm);
  return finish();
}
