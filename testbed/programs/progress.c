/* Legal programs that hang if a wait does not advance MPI, or if a wait advances only its own plan.

   Rank 0: Irecv, collective, Wait; rank 1: Send, collective. A large send ends only when the receiver makes progress,
   which it can do only inside the collective. Every collective, 1 kB, 1 MB and 8 MiB.
   Then two plans started in opposite orders on two ranks, with several rounds each. */
#include "check.h"

static char in[64 * 64], out[64 * 64];

static void collective(int which, MPI_Comm comm) {
  int counts[64], displs[64];
  for (int r = 0; r < size; r++) counts[r] = 8, displs[r] = 8 * r;
  switch (which) {
  case 0: MUST(bruckner_allgather(in, 8, MPI_BYTE, out, 8, MPI_BYTE, comm)); break;
  case 1: MUST(bruckner_allgatherv(in, 8, MPI_BYTE, out, counts, displs, MPI_BYTE, comm)); break;
  case 2: MUST(bruckner_allreduce(in, out, 1, MPI_INT64_T, MPI_SUM, comm)); break;
  case 3: MUST(bruckner_reduce_scatter_block(in, out, 1, MPI_INT64_T, MPI_SUM, comm)); break;
  case 4: MUST(bruckner_alltoall(in, 8, MPI_BYTE, out, 8, MPI_BYTE, comm)); break;
  case 5: MUST(bruckner_alltoallv(in, counts, displs, MPI_BYTE, out, counts, displs, MPI_BYTE, comm)); break;
  case 6: MUST(bruckner_bcast(in, 8, MPI_BYTE, 0, comm)); break;
  case 7: MUST(bruckner_reduce(in, out, 1, MPI_INT64_T, MPI_SUM, 0, comm)); break;
  case 8: MUST(bruckner_barrier(comm)); break;
  }
}

static const char *RULES[] = {
    "allgather=shm; allreduce=shm; reduce_scatter=shm; alltoall=locality(node); bcast=shm; reduce=shm; barrier=shm",
    "allgather=bruck(2); allreduce=recursive-doubling; reduce_scatter=ring; alltoall=pairwise; bcast=ring; reduce=ring; "
    "barrier=bruck(2)",
};

int main(int argc, char **argv) {
  begin(&argc, &argv);
  static char message[8 << 20];
  static const int SIZES[] = {1000, 1000000, 8 << 20};
  for (int rules = 0; rules < 2; rules++) {
    MUST(bruckner_set_algorithms(MPI_COMM_WORLD, RULES[rules]));
    for (int which = 0; which < 9; which++)
      for (int i = 0; i < 3; i++)
        for (int again = 0, bytes = SIZES[i]; again < 3; again++) {
          /* The plan is there before the test: making one is a native collective, which advances MPI itself. */
          collective(which, MPI_COMM_WORLD);
          MPI_Request request;
          memset(message, rank, bytes);
          if (rank == 0) MPI_Irecv(message, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
          if (rank == 1) MPI_Send(message, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD);
          collective(which, MPI_COMM_WORLD);
          if (rank == 0) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            EXPECT(message[bytes - 1] == 1, "the message did not arrive");
          }
          cases++;
        }
    /* Opposite orders. */
    int64_t a_in = rank, a_out, b_in = 10 * rank, b_out;
    bruckner_plan *a, *b;
    MUST(bruckner_allreduce_init(&a_in, &a_out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, "", &a));
    MUST(bruckner_allreduce_init(&b_in, &b_out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, "recursive-doubling", &b));
    int64_t sum = (int64_t)size * (size - 1) / 2;
    for (int again = 0; again < 200; again++) {
      a_out = b_out = -1;
      bruckner_plan *first = rank % 2 ? a : b, *second = rank % 2 ? b : a;
      MUST(bruckner_start(first));
      MUST(bruckner_start(second));
      if (again % 3 == 0) MUST(bruckner_barrier(MPI_COMM_WORLD));
      MUST(bruckner_wait(again % 2 ? first : second));
      MUST(bruckner_wait(again % 2 ? second : first));
      EXPECT(a_out == sum && b_out == 10 * sum, "plans in opposite orders: %ld, %ld", (long)a_out, (long)b_out);
      cases++;
    }
    MUST(bruckner_free(&a));
    MUST(bruckner_free(&b));
  }
  return finish();
}
