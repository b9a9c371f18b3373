/* sizes [judged]: many sizes, and short-lived communicators. Sums have the same bits in every call on a communicator;
   alternating sizes cost as much as each size alone, new lists of counts no more than with the MPI, and a duplicate freed
   after four sums not much more than the MPI's own. With an argument, ratios of times in this run are printed; with "judged"
   they are also checked. */
#include "plain.h"

#define SIZES 300
static double a[4096], b[65536], first[4096];

static void same_bits(void) {
  for (int round = 0; round < 6; round++) {
    MPI_Comm comm = MPI_COMM_WORLD;
    if (round) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int n = 1 + 61 * round;
    for (int i = 0; i < n; i++) a[i] = 1.0 / (3 + rank + i * (1 + rank));
    for (int call = 0; call < 7; call++) {
      MPI_Allreduce(a, call ? b : first, n, MPI_DOUBLE, MPI_SUM, comm);
      EXPECT(!call || !memcmp(b, first, n * sizeof *b), "call %d of a communicator gave other bits", call + 1);
      cases++;
    }
    if (round) MPI_Comm_free(&comm);
  }
}

/* Every size and every list of counts is right, whatever came before it. */
static void in_turn(void) {
  int counts[64], at[64];
  for (int again = 0; again < 3; again++)
    for (int n = 1; n <= SIZES; n++) {
      int64_t *in = (int64_t *)a, *out = (int64_t *)b;
      for (int i = 0; i < n + 8; i++) in[i] = rank * 1000 + i + again;
      MPI_Allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      EXPECT(out[n - 1] == (int64_t)size * (size - 1) / 2 * 1000 + (int64_t)size * (n - 1 + again), "a sum of %d elements", n);
      int total = 0;
      for (int r = 0; r < size; r++) counts[r] = (n * (r + 3) + again) % 7, at[r] = total, total += counts[r];
      MPI_Allgatherv(in, counts[rank], MPI_INT64_T, out, counts, at, MPI_INT64_T, MPI_COMM_WORLD);
      for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++) EXPECT(out[at[r] + i] == r * 1000 + i + again, "a list of counts, %d", n);
      for (int i = 0; i < total; i++) in[i] = rank + i;
      MPI_Reduce_scatter(in, out, counts, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
      for (int i = 0; i < counts[rank]; i++)
        EXPECT(out[i] == (int64_t)size * (size - 1) / 2 + (int64_t)size * (at[rank] + i), "a scattered sum, %d", n);
      int root = n % size;
      for (int i = 0; i < n; i++) in[i] = rank == root ? n + i : -1;
      MPI_Bcast(in, n, MPI_INT64_T, root, MPI_COMM_WORLD);
      EXPECT(in[n - 1] == n + n - 1, "a broadcast of %d elements", n);
      cases += 4;
    }
}

static double now(void) { return MPI_Wtime(); }

/* The best of some measurements of a function, in seconds. */
static double best(void (*f)(int), int argument) {
  double least = 1e9;
  for (int i = 0; i < 7; i++) {
    NATIVE(Barrier)(MPI_COMM_WORLD);
    double start = now();
    f(argument);
    double time = now() - start, longest;
    NATIVE(Allreduce)(&time, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (longest < least) least = longest;
  }
  return least;
}

#define TIMES 20
static void sums(int turns) {
  for (int i = 0; i < SIZES * TIMES; i++) MPI_Allreduce(a, b, 1 + (turns ? i % SIZES : i / TIMES), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void lists(int ours) {
  int counts[64], at[64];
  for (int i = 0; i < SIZES * TIMES; i++) {
    int total = 0, k = i % SIZES;
    for (int r = 0; r < size; r++) counts[r] = 1 + (k * (r + 1)) % 200, at[r] = total, total += counts[r];
    (ours ? MPI_Allgatherv : NATIVE(Allgatherv))(a, counts[rank], MPI_DOUBLE, b, counts, at, MPI_DOUBLE, MPI_COMM_WORLD);
  }
}

static void duplicates(int ours) {
  for (int i = 0; i < 100; i++) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int k = 0; k < 4; k++) (ours ? MPI_Allreduce : NATIVE(Allreduce))(a, b, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Comm_free(&comm);
  }
}

int main(int argc, char **argv) {
  /* As most programs do: without threads. */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  same_bits();
  in_turn();
  if (argc > 1) {
    double turns = best(sums, 1) / best(sums, 0), anew = best(lists, 1) / best(lists, 0);
    double duplicate = best(duplicates, 1) / best(duplicates, 0);
    if (!rank) fprintf(stderr, "in turn %.2f new lists %.2f duplicate %.2f\n", turns, anew, duplicate);
    if (!rank && !strcmp(argv[1], "judged")) EXPECT(turns < 1.3 && anew < 1.3 && duplicate < 2, "in turn %.2f, new lists %.2f, duplicate %.2f", turns, anew, duplicate);
  }
  return finish();
}
