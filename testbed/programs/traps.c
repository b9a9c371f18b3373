/* Cases that break libraries that intercept MPI, one by one. 3 ranks or more; run with the library preloaded. */
#include "plain.h"

/* Send and receive types of one signature and different maps, on some ranks only. */
static void maps(void) {
  MPI_Datatype pair, gaps;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_vector(2, 1, 3, MPI_INT, &gaps);
  MPI_Type_commit(&pair), MPI_Type_commit(&gaps);
  int mine[4] = {rank, rank + 100, 7, rank + 200}, out[256];
  for (int again = 0; again < 8; again++) {
    memset(out, -1, sizeof out);
    /* Rank 0 sends with gaps, the others densely; the last receives pairs, the others integers. */
    int dense[2] = {rank, rank + 200};
    const void *send = rank == 0 ? mine : dense;
    MPI_Allgather(send, rank == 0 ? 1 : 2, rank == 0 ? gaps : MPI_INT, out, rank == size - 1 ? 1 : 2, rank == size - 1 ? pair : MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(out[2 * r] == r && out[2 * r + 1] == r + 200, "maps: block %d is %d %d", r, out[2 * r], out[2 * r + 1]);
    cases++;
  }
  MPI_Type_free(&pair), MPI_Type_free(&gaps);
}

/* A lower bound below zero, in a bcast and an alltoall. */
static void bounds(void) {
  MPI_Datatype type, made;
  int lengths[2] = {1, 1};
  MPI_Aint places[2] = {-8, 4};
  MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &made);
  MPI_Type_create_resized(made, -8, 16, &type);
  MPI_Type_commit(&type);
  int memory[8 + 4 * 64], *data = memory + 4;
  for (int again = 0; again < 8; again++) {
    for (int i = 0; i < 8 + 4 * 64; i++) memory[i] = rank == again % size ? i : -1;
    MPI_Bcast(data, size, type, again % size, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
      int *at = data + 4 * i;
      EXPECT(at[-2] == 4 + 4 * i - 2 && at[1] == 4 + 4 * i + 1, "bounds: element %d is %d %d", i, at[-2], at[1]);
      EXPECT(rank == again % size || at[0] == -1, "bounds: a gap was written");
    }
    cases++;
  }
  MPI_Type_free(&made), MPI_Type_free(&type);
}

/* Nothing at all, in place and not; null buffers. */
static void nothing(void) {
  int zeros[64] = {0}, data[64] = {rank}, out[64];
  for (int again = 0; again < 5; again++) {
    MPI_Alltoallv(MPI_IN_PLACE, 0, 0, MPI_DATATYPE_NULL, data, zeros, zeros, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallv(data, zeros, zeros, MPI_INT, out, zeros, zeros, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgatherv(0, 0, MPI_INT, out, zeros, zeros, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(0, 0, MPI_INT, 0, 0, MPI_INT, MPI_COMM_WORLD);
    MPI_Allreduce(data, out, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(data, out, 0, MPI_DOUBLE, MPI_SUM, size - 1, MPI_COMM_WORLD);
    MPI_Reduce_scatter(data, out, zeros, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(0, 0, MPI_CHAR, 0, MPI_COMM_WORLD);
    EXPECT(data[0] == rank, "nothing: something came");
    cases++;
  }
}

/* In place, in each collective's own sense. */
static void in_place(void) {
  int data[256], counts[64], places[64];
  for (int again = 0; again < 5; again++) {
    for (int i = 0; i < 2 * size; i++) data[i] = -1;
    data[2 * rank] = rank, data[2 * rank + 1] = 10 * rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, 2, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(data[2 * r] == r && data[2 * r + 1] == 10 * r, "in place: allgather");
    for (int r = 0; r < size; r++) counts[r] = r + 1, places[r] = r * (r + 1) / 2;
    for (int i = 0; i < counts[rank]; i++) data[places[rank] + i] = 100 * rank + i;
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
      for (int i = 0; i <= r; i++) EXPECT(data[places[r] + i] == 100 * r + i, "in place: allgatherv");
    for (int r = 0; r < size; r++) data[r] = 100 * rank + r;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(data[r] == 100 * r + rank, "in place: alltoall");
    for (int r = 0; r < size; r++) data[r] = rank + r;
    MPI_Allreduce(MPI_IN_PLACE, data, size, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(data[r] == size * (size - 1) / 2 + size * r, "in place: allreduce");
    for (int r = 0; r < size; r++) data[r] = rank + r;
    int root = again % size;
    /* MPICH 4.0 crashes in its own reduce in place at another root than 0. */
    MPI_Reduce(rank == root ? MPI_IN_PLACE : data, rank == root ? data : 0, size, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root)
      for (int r = 0; r < size; r++) EXPECT(data[r] == size * (size - 1) / 2 + size * r, "in place: reduce");
    for (int r = 0; r < size; r++) data[r] = rank + r;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(data[0] == size * (size - 1) / 2 + size * rank, "in place: reduce_scatter_block");
    cases++;
  }
}

/* Intercommunicators, one rank, and what is freed and made again under the same handle. */
static void communicators(void) {
  MPI_Comm half, inter, alone;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
  int mine = rank + 1, sum, expected = 0;
  for (int r = 0; r < size; r++)
    if (r % 2 != rank % 2) expected += r + 1;
  for (int again = 0; again < 6; again++) {
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    EXPECT(sum == expected, "an intercommunicator: %d instead of %d", sum, expected);
    MPI_Barrier(inter);
    cases++;
  }
  MPI_Comm_free(&inter);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
  for (int again = 0; again < 6; again++) {
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, alone);
    EXPECT(sum == mine, "one rank");
    MPI_Bcast(&sum, 1, MPI_INT, 0, alone);
    cases++;
  }
  MPI_Comm_free(&alone);
  MPI_Comm_free(&half);
  for (int again = 0; again < 200; again++) {
    /* Of different sizes and orders, one after the other: a handle's value comes back. */
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, again % 3 == 0 ? 0 : rank % 2, again % 2 ? -rank : rank, &comm);
    int me, p, all[64];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &p);
    for (int i = 0; i < 6; i++) {
      MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm);
      MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
      int whole = 0;
      for (int r = 0; r < p; r++) whole += all[r] + 1;
      EXPECT(all[me] == rank && sum == whole, "communicator %d: %d instead of %d", again, sum, whole);
    }
    MPI_Comm_free(&comm);
    cases++;
  }
}

static int raised;
static void handler(MPI_Comm *comm, int *code, ...) { raised++; }

/* Errors come to the handler of the communicator that was used. */
static void errors(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Errhandler ours;
  MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)handler, &ours);
  MPI_Comm_set_errhandler(comm, ours);
  int mine = rank, sum;
  for (int again = 0; again < 6; again++) MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
  /* Only roots that there are not: on a negative count or a null handle some MPIs crash by themselves. Each MPI's own
     functions say what is to be returned, and how often the handler is to be called. */
  int ours_codes[2] = {MPI_Bcast(&mine, 1, MPI_INT, size + 5, comm), MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, size + 5, comm)};
  int ours_raised = raised;
  raised = 0;
  int codes[2] = {NATIVE(Bcast)(&mine, 1, MPI_INT, size + 5, comm), NATIVE(Reduce)(&mine, &sum, 1, MPI_INT, MPI_SUM, size + 5, comm)};
  EXPECT(ours_raised == raised && raised == 2, "errors: %d were raised instead of %d", ours_raised, raised);
  for (int i = 0; i < 2; i++) EXPECT(!ours_codes[i] == !codes[i], "errors: %d was returned instead of %d", ours_codes[i], codes[i]);
  /* And everything goes on. */
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
  EXPECT(sum == size * (size - 1) / 2, "errors: then nothing works");
  MPI_Comm_free(&comm);
  MPI_Errhandler_free(&ours);
  cases++;
}

/* A product of counts that no 32-bit integer can hold, if there is memory; and displacements in odd order. */
static void large(void) {
  int n = 1 << 20, counts[64], places[64];
  MPI_Datatype kilo;
  MPI_Type_contiguous(1024, MPI_CHAR, &kilo);
  MPI_Type_commit(&kilo);
  /* 64 KiB of a type of 1 KiB each: the product with 2^16 ranks would overflow; here the sum of all is checked. */
  char *in = malloc(1024 * 1024), *out = malloc((size_t)size * 1024 * 1024);
  memset(in, rank + 1, 1024 * 1024);
  for (int again = 0; again < 3; again++) {
    memset(out, 0, (size_t)size * 1024 * 1024);
    for (int r = 0; r < size; r++) counts[r] = 1024, places[r] = 1024 * (size - 1 - r);
    MPI_Allgatherv(in, n, MPI_CHAR, out, counts, places, kilo, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
      EXPECT(out[(size_t)(size - 1 - r) * n] == r + 1 && out[(size_t)(size - r) * n - 1] == r + 1, "large: block %d", r);
    cases++;
  }
  free(in), free(out);
  MPI_Type_free(&kilo);
}

/* The same bits on every rank and in every repetition. */
static void bits(void) {
  double mine[100], out[100], first[100], other[100];
  for (int i = 0; i < 100; i++) mine[i] = 1.0 / (1 + rank * 100 + i);
  for (int again = 0; again < 20; again++) {
    MPI_Allreduce(mine, out, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (again == 5) memcpy(first, out, sizeof out);
    memcpy(other, out, sizeof out);
    NATIVE(Bcast)(other, 100, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (again >= 5) EXPECT(memcmp(first, out, sizeof out) == 0, "bits: another result in repetition %d", again);
    EXPECT(again < 5 || memcmp(other, out, sizeof out) == 0, "bits: another result than on rank 0");
    cases++;
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  maps(), bounds(), nothing(), in_place(), communicators(), errors(), large(), bits();

  return finish();
}
