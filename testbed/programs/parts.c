/* Calls that one MPI function tolerates or computes correctly and another does not, because the library may handle a call by
   other MPI functions than the one called. */
#include "common.h"

#define ROUNDS 10

struct pair {
  double value;
  int index;
};

/* In place, and with one buffer for both where the argument says that the MPI allows that. */
static void sums(int aliases) {
  double expected = size * (size + 1) / 2.0, in = rank + 1, out = -1;
  MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(out == expected, "a sum is %g", out);
  out = rank + 1;
  MPI_Allreduce(MPI_IN_PLACE, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(out == expected, "a sum in place is %g", out);
  if (aliases) {
    out = rank + 1;
    MPI_Allreduce(&out, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == expected, "a sum in one buffer is %g", out);
  }
  int many[17], results[17];
  for (int count = 1; count <= 17; count++) {
    for (int i = 0; i < count; i++) many[i] = rank + i, results[i] = -1;
    MPI_Allreduce(many, results, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, many, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
      int sum = size * (size - 1) / 2 + size * i;
      EXPECT(results[i] == sum && many[i] == sum, "%d of %d is %d, in place %d", i, count, results[i], many[i]);
    }
  }
  cases += 19;
}

/* Pairs have gaps. */
static void pairs(void) {
  struct pair in[5], out[5];
  for (int i = 0; i < 5; i++) in[i] = (struct pair){(rank * 7 + i) % 5, rank};
  MPI_Allreduce(in, out, 5, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, in, 5, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  for (int i = 0; i < 5; i++) {
    struct pair most = {-1, 0};
    for (int r = 0; r < size; r++)
      if ((r * 7 + i) % 5 > most.value) most = (struct pair){(r * 7 + i) % 5, r};
    EXPECT(out[i].value == most.value && out[i].index == most.index, "maximum %d is at %d", i, out[i].index);
    EXPECT(in[i].value == most.value && in[i].index == most.index, "maximum %d in place is at %d", i, in[i].index);
  }
  cases += 2;
}

/* Columns that lie between each other, and types that differ between ranks. */
static void types(void) {
  enum { ROWS = 3, COLUMNS = 4, ALL = ROWS * COLUMNS };
  double local[ALL], *gathered = malloc(size * sizeof local);
  MPI_Datatype column, next, whole;
  MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &column);
  MPI_Type_create_resized(column, 0, sizeof(double), &next);
  MPI_Type_commit(&next);
  MPI_Type_contiguous(ALL, MPI_DOUBLE, &whole);
  MPI_Type_commit(&whole);
  for (int i = 0; i < ALL; i++) local[i] = 100 * rank + i;
  MPI_Allgather(local, COLUMNS, next, gathered, ALL, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int i = 0; i < size * ALL; i++) {
    int from = i / ALL, at = i % ALL / ROWS, row = i % ROWS;
    EXPECT(gathered[i] == 100 * from + row * COLUMNS + at, "column %d of %d is %g", at, from, gathered[i]);
  }
  memset(gathered, 0, size * sizeof local);
  int wide = rank == 0;
  MPI_Allgather(local, ALL, MPI_DOUBLE, gathered, wide ? 1 : ALL, wide ? whole : MPI_DOUBLE, MPI_COMM_WORLD);
  for (int i = 0; i < size * ALL; i++)
    EXPECT(gathered[i] == 100 * (i / ALL) + i % ALL, "element %d is %g", i, gathered[i]);
  /* In place, on all ranks and on some. */
  for (int some = 0; some < 2; some++) {
    memset(gathered, 0, size * sizeof local);
    memcpy(gathered + rank * ALL, local, sizeof local);
    if (some && rank % 2) MPI_Allgather(local, ALL, MPI_DOUBLE, gathered, ALL, MPI_DOUBLE, MPI_COMM_WORLD);
    else MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, ALL, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < size * ALL; i++)
      EXPECT(gathered[i] == 100 * (i / ALL) + i % ALL, "element %d in place is %g", i, gathered[i]);
  }
  MPI_Type_free(&column), MPI_Type_free(&next), MPI_Type_free(&whole);
  free(gathered);
  cases += 4;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < ROUNDS; round++) sums(argc > 1), pairs(), types();
  long failed = total();
  MPI_Finalize();
  return failed != 0;
}
