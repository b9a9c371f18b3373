/* Checks that reductions of pair types write no padding and give right values: in every reduction, in the first call and later
   ones, in place and not, blocking and persistent. */
#include "common.h"

enum { MOST = 400 };

typedef struct {
  MPI_Datatype type;
  int extent, value, index;
} pair;

/* Values and indices, and padding that says whose it is. */
static void put(char *at, const pair *p, int value, int index, int padding) {
  memset(at, padding, p->extent);
  if (p->type == MPI_DOUBLE_INT) *(double *)at = value;
  else if (p->type == MPI_LONG_INT) *(long *)at = value;
  else *(short *)at = (short)value;
  memcpy(at + p->index, &index, 4);
}

static void expect(const char *at, const pair *p, int value, int index, int padding, const char *what) {
  char right[16];
  put(right, p, value, index, padding);
  EXPECT(!memcmp(at, right, p->extent), "%s of pairs of %d bytes: %s", what, p->extent,
         memcmp(at, right, p->value) || memcmp(at + p->index, right + p->index, 4) ? "wrong" : "padding is written");
  cases++;
}

static char in[16 * MOST], out[16 * MOST];

/* The greatest value of element i is that of rank i % size. */
static void fill(char *at, const pair *p, int count, int padding) {
  for (int i = 0; i < count; i++) put(at + i * p->extent, p, rank == i % size ? 50 + i % 7 : i % 7, rank, padding);
}

static void check(const pair *p, int first, int count, int padding, const char *what) {
  for (int i = 0; i < count; i++) expect(out + i * p->extent, p, 50 + (first + i) % 7, (first + i) % size, padding, what);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const pair pairs[] = {{MPI_DOUBLE_INT, 16, 8, 8}, {MPI_LONG_INT, 16, 8, 8}, {MPI_SHORT_INT, 8, 2, 4}};
  const int sizes[] = {1, 3, 1, 90, 7};
  for (int k = 0; k < 3; k++)
    for (int round = 0; round < 15; round++) {
      const pair *p = &pairs[k];
      int n = sizes[round % 5], root = round % size, counts[64], first = 0, all = 0;
      for (int i = 0; i < size; i++) {
        counts[i] = (i + round) % 3 * n / 2;
        if (i < rank) first += counts[i];
        all += counts[i];
      }
      fill(in, p, MOST, 0x11);
      memset(out, 0x77, sizeof out);
      MPI_Allreduce(in, out, n, p->type, MPI_MAXLOC, MPI_COMM_WORLD);
      check(p, 0, n, 0x77, "allreduce");
      fill(out, p, n, 0x22);
      MPI_Allreduce(MPI_IN_PLACE, out, n, p->type, MPI_MAXLOC, MPI_COMM_WORLD);
      check(p, 0, n, 0x22, "allreduce in place");
      memset(out, 0x77, sizeof out);
      MPI_Reduce(in, out, n, p->type, MPI_MAXLOC, root, MPI_COMM_WORLD);
      if (rank == root) check(p, 0, n, 0x77, "reduce");
      memset(out, 0x77, sizeof out);
      MPI_Reduce_scatter_block(in, out, n, p->type, MPI_MAXLOC, MPI_COMM_WORLD);
      check(p, rank * n, n, 0x77, "reduce_scatter_block");
      memset(out, 0x77, sizeof out);
      MPI_Reduce_scatter(in, out, counts, p->type, MPI_MAXLOC, MPI_COMM_WORLD);
      check(p, first, counts[rank], 0x77, "reduce_scatter");
#if MPI_VERSION >= 4
      MPI_Request request;
      MPI_Status status;
      MPI_Allreduce_init(in, out, n, p->type, MPI_MAXLOC, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
      for (int start = 0; start < 3; start++) {
        memset(out, 0x77, sizeof out);
        MPI_Start(&request);
        MPI_Wait(&request, &status);
        if (argc > 1) check(p, 0, n, 0x77, "persistent allreduce");
      }
      MPI_Request_free(&request);
#endif
    }
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
