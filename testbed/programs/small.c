/* A small run of each collective, through shared memory and by messages, blocking and as plans: for valgrind. */
#include "check.h"

int main(int argc, char **argv) {
  begin(&argc, &argv);
  static const char *RULES[] = {
      "allgather=shm; allreduce=shm; reduce_scatter=shm; alltoall=locality(node); bcast=shm; reduce=shm; barrier=shm",
      "allgather=bruck(2); allreduce=rabenseifner; reduce_scatter=ring; alltoall=bruck(2); bcast=sparbit; reduce=ring; "
      "barrier=bruck(2)",
  };
  for (int rules = 0; rules < 2; rules++) {
    MUST(bruckner_set_algorithms(MPI_COMM_WORLD, RULES[rules]));
    int n = 5, counts[64], displs[64];
    int64_t *in = malloc(8 * n * size), *out = malloc(8 * n * size);
    for (int r = 0; r < size; r++) counts[r] = n, displs[r] = n * r;
    for (int i = 0; i < n * size; i++) in[i] = rank * 100 + i;
    MUST(bruckner_allgather(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++) EXPECT(out[n * r] == 100 * r, "allgather");
    MUST(bruckner_allgatherv(in, n, MPI_INT64_T, out, counts, displs, MPI_INT64_T, MPI_COMM_WORLD));
    MUST(bruckner_allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(out[0] == 50L * size * (size - 1), "allreduce");
    MUST(bruckner_reduce_scatter(in, out, counts, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    MUST(bruckner_reduce_scatter_block(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    MUST(bruckner_alltoall(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD));
    MUST(bruckner_alltoallv(in, counts, displs, MPI_INT64_T, out, counts, displs, MPI_INT64_T, MPI_COMM_WORLD));
    EXPECT(out[0] == n * rank, "alltoallv");
    MUST(bruckner_bcast(in, n, MPI_INT64_T, size - 1, MPI_COMM_WORLD));
    MUST(bruckner_reduce(in, out, n, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
    MUST(bruckner_barrier(MPI_COMM_WORLD));
    bruckner_plan *plan;
    MUST(bruckner_allreduce_init(in, out, n, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, NULL, &plan));
    for (int i = 0; i < 100; i++) {
      MUST(bruckner_start(plan));
      MUST(bruckner_wait(plan));
    }
    MUST(bruckner_free(&plan));
    free(in), free(out);
  }
  return finish();
}
