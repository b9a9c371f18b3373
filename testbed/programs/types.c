/* Compares every built-in operation on every built-in type with PMPI_Allreduce, bit by bit (with two ranks there is only one order).
   Also user operations, commutative and not, and derived types with gaps and with a negative lower bound, which are moved but not
   reduced. */
#include "check.h"
#include <complex.h>

enum { COUNT = 37 };
static MPI_Comm comm;

static void pair(const char *name, MPI_Datatype type, size_t bytes, MPI_Op op, int is_pair) {
  /* Open MPI compares MPI_OFFSET as if it were unsigned, and MPICH 4.0.2 some unsigned types as if they were signed. */
  int is_unsigned = type == MPI_UNSIGNED_CHAR || type == MPI_UNSIGNED_SHORT || type == MPI_UNSIGNED ||
                    type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT8_T ||
                    type == MPI_UINT16_T || type == MPI_UINT32_T || type == MPI_UINT64_T || type == MPI_OFFSET;
  char *in = guarded(COUNT * bytes), *ours = guarded(COUNT * bytes), *theirs = guarded(COUNT * bytes);
  /* Small whole numbers in any representation: bytes below 8 in integers, and the values themselves in floats. */
  memset(in, 0, COUNT * bytes), memset(ours, 0, COUNT * bytes), memset(theirs, 0, COUNT * bytes);
  for (int i = 0; i < COUNT; i++) {
    /* Nothing overflows: Open MPI's sums of small unsigned integers saturate, and others wrap around. */
    int v = (i * 7 + rank * 5) % 11, w = is_unsigned ? v : v - 5;
#define PUT(t, x) *(t *)(in + i * bytes) = (x)
    if (type == MPI_FLOAT || type == MPI_FLOAT_INT) PUT(float, v + 0.5f);
    else if (type == MPI_DOUBLE || type == MPI_DOUBLE_INT) PUT(double, v + 0.25);
    else if (type == MPI_LONG_DOUBLE || type == MPI_LONG_DOUBLE_INT) PUT(long double, v + 0.125L);
    else if (type == MPI_C_FLOAT_COMPLEX) PUT(float complex, v + 2.0f * I);
    else if (type == MPI_C_DOUBLE_COMPLEX) PUT(double complex, v - 3.0 * I);
    else if (type == MPI_C_BOOL) PUT(char, v & 1);
    else if (bytes == 1) PUT(char, w);
    else if (bytes == 2) PUT(short, w);
    else if (type == MPI_SHORT_INT) PUT(short, v - 5);
    else if (bytes == 4 || type == MPI_2INT) PUT(int, w);
    else PUT(long, w);
    if (is_pair) {
      size_t at = type == MPI_FLOAT_INT || type == MPI_2INT || type == MPI_SHORT_INT ? 4 : type == MPI_LONG_DOUBLE_INT ? 16 : 8;
      *(int *)(in + i * bytes + at) = rank * 100 + i;
    }
  }
  MUST(bruckner_allreduce(in, ours, COUNT, type, op, comm));
  PMPI_Allreduce(in, theirs, COUNT, type, op, comm);
  int size_of_type, equal = 1;
  MPI_Type_size(type, &size_of_type);
  /* Padding within an element is nobody's. */
  for (int i = 0; i < COUNT && equal; i++) {
    size_t a = i * bytes;
    if (type == MPI_SHORT_INT) equal = memcmp(ours + a, theirs + a, 2) == 0 && memcmp(ours + a + 4, theirs + a + 4, 4) == 0;
    else if (type == MPI_LONG_DOUBLE || type == MPI_LONG_DOUBLE_INT)
      equal = memcmp(ours + a, theirs + a, 10) == 0 && (!is_pair || memcmp(ours + a + 16, theirs + a + 16, 4) == 0);
    else equal = memcmp(ours + a, theirs + a, is_pair ? (bytes == 16 ? 12 : 8) : bytes) == 0;
  }
  EXPECT(equal, "%s: another result than PMPI_Allreduce", name);
  EXPECT(is_intact(ours, COUNT * bytes), "%s: a canary is dead", name);
  unguard(in), unguard(ours), unguard(theirs);
  cases++;
}

static void built_in(void) {
#define NUMBERS(T, bytes)                                                                                   \
  pair(#T " MAX", T, bytes, MPI_MAX, 0), pair(#T " MIN", T, bytes, MPI_MIN, 0), pair(#T " SUM", T, bytes, MPI_SUM, 0), \
      pair(#T " PROD", T, bytes, MPI_PROD, 0)
#define LOGICAL(T, bytes)                                                                                   \
  pair(#T " LAND", T, bytes, MPI_LAND, 0), pair(#T " LOR", T, bytes, MPI_LOR, 0), pair(#T " LXOR", T, bytes, MPI_LXOR, 0)
#define BITS(T, bytes)                                                                                      \
  pair(#T " BAND", T, bytes, MPI_BAND, 0), pair(#T " BOR", T, bytes, MPI_BOR, 0), pair(#T " BXOR", T, bytes, MPI_BXOR, 0)
#define INTEGER(T, bytes) NUMBERS(T, bytes), LOGICAL(T, bytes), BITS(T, bytes)
  INTEGER(MPI_SIGNED_CHAR, 1), INTEGER(MPI_UNSIGNED_CHAR, 1), INTEGER(MPI_SHORT, 2), INTEGER(MPI_UNSIGNED_SHORT, 2);
  INTEGER(MPI_INT, 4), INTEGER(MPI_UNSIGNED, 4), INTEGER(MPI_LONG, 8), INTEGER(MPI_UNSIGNED_LONG, 8);
  INTEGER(MPI_LONG_LONG, 8), INTEGER(MPI_UNSIGNED_LONG_LONG, 8), INTEGER(MPI_INT8_T, 1), INTEGER(MPI_INT16_T, 2);
  INTEGER(MPI_INT32_T, 4), INTEGER(MPI_INT64_T, 8), INTEGER(MPI_UINT8_T, 1), INTEGER(MPI_UINT16_T, 2);
  INTEGER(MPI_UINT32_T, 4), INTEGER(MPI_UINT64_T, 8), INTEGER(MPI_AINT, 8), INTEGER(MPI_OFFSET, 8), INTEGER(MPI_COUNT, 8);
  NUMBERS(MPI_FLOAT, 4), NUMBERS(MPI_DOUBLE, 8), NUMBERS(MPI_LONG_DOUBLE, 16);
  LOGICAL(MPI_C_BOOL, 1), BITS(MPI_BYTE, 1);
  pair("complex SUM", MPI_C_FLOAT_COMPLEX, 8, MPI_SUM, 0), pair("complex PROD", MPI_C_FLOAT_COMPLEX, 8, MPI_PROD, 0);
  pair("double complex SUM", MPI_C_DOUBLE_COMPLEX, 16, MPI_SUM, 0);
  pair("double complex PROD", MPI_C_DOUBLE_COMPLEX, 16, MPI_PROD, 0);
#define PLACES(T, bytes) pair(#T " MINLOC", T, bytes, MPI_MINLOC, 1), pair(#T " MAXLOC", T, bytes, MPI_MAXLOC, 1)
  PLACES(MPI_2INT, 8), PLACES(MPI_SHORT_INT, 8), PLACES(MPI_LONG_INT, 16), PLACES(MPI_FLOAT_INT, 8);
  PLACES(MPI_DOUBLE_INT, 16), PLACES(MPI_LONG_DOUBLE_INT, 32);
}

/* x becomes 2a + b: neither commutative nor associative enough to hide an order. */
static void twice_and(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((int *)inout)[i] = 2 * ((int *)in)[i] + ((int *)inout)[i];
}

static void user_operations(void) {
  for (int commutes = 0; commutes < 2; commutes++) {
    MPI_Op op;
    MPI_Op_create(twice_and, commutes, &op);
    int in[5], ours[5], theirs[5];
    for (int i = 0; i < 5; i++) in[i] = 3 * rank + i + 1;
    MUST(bruckner_allreduce(in, ours, 5, MPI_INT, op, comm));
    PMPI_Allreduce(in, theirs, 5, MPI_INT, op, comm);
    if (!commutes) EXPECT(memcmp(ours, theirs, sizeof ours) == 0, "a user operation: %d, and %d", ours[0], theirs[0]);
    MPI_Op_free(&op);
    cases++;
  }
}

static void moved(void) {
  /* Two ints of every three, and the same reversed in memory: a lower bound below zero. */
  MPI_Datatype gaps, reversed, pair_type;
  MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
  MPI_Type_create_resized(gaps, 0, 4 * sizeof(int), &pair_type);
  MPI_Type_commit(&pair_type);
  int lengths[] = {1, 1};
  MPI_Aint places[] = {0, -2 * (MPI_Aint)sizeof(int)};
  MPI_Datatype types[] = {MPI_INT, MPI_INT}, plain;
  MPI_Type_create_struct(2, lengths, places, types, &plain);
  MPI_Type_create_resized(plain, -2 * (MPI_Aint)sizeof(int), 4 * sizeof(int), &reversed);
  MPI_Type_commit(&reversed);
  for (int which = 0; which < 4; which++) {
    int in[40], ours[80], theirs[80];
    memset(ours, -1, sizeof ours), memset(theirs, -1, sizeof theirs);
    for (int i = 0; i < 40; i++) in[i] = 1000 * rank + i;
    MPI_Datatype send = which & 1 ? reversed : pair_type, recv = which & 2 ? reversed : pair_type;
    /* The signatures are equal: two ints. */
    int counts[8], displs[8];
    for (int r = 0; r < size; r++) counts[r] = 1 + r % 2, displs[r] = 3 * r;
    MUST(bruckner_allgather(in + 8, 2, send, ours + 8, 2, recv, comm));
    PMPI_Allgather(in + 8, 2, send, theirs + 8, 2, recv, comm);
    EXPECT(memcmp(ours, theirs, sizeof ours) == 0, "allgather of types %d", which);
    MUST(bruckner_allgatherv(in + 8, counts[rank], send, ours + 8, counts, displs, recv, comm));
    PMPI_Allgatherv(in + 8, counts[rank], send, theirs + 8, counts, displs, recv, comm);
    EXPECT(memcmp(ours, theirs, sizeof ours) == 0, "allgatherv of types %d", which);
    MUST(bruckner_alltoall(in + 8, 1, send, ours + 8, 1, recv, comm));
    PMPI_Alltoall(in + 8, 1, send, theirs + 8, 1, recv, comm);
    EXPECT(memcmp(ours, theirs, sizeof ours) == 0, "alltoall of types %d", which);
    int ones[8];
    for (int r = 0; r < size; r++) ones[r] = 1;
    MUST(bruckner_alltoallv(in + 8, ones, displs, send, ours + 8, ones, displs, recv, comm));
    PMPI_Alltoallv(in + 8, ones, displs, send, theirs + 8, ones, displs, recv, comm);
    EXPECT(memcmp(ours, theirs, sizeof ours) == 0, "alltoallv of types %d", which);
    memcpy(ours, in, sizeof in), memcpy(theirs, in, sizeof in);
    MUST(bruckner_bcast(ours + 8, 3, rank == 0 ? send : recv, 0, comm));
    PMPI_Bcast(theirs + 8, 3, rank == 0 ? send : recv, 0, comm);
    EXPECT(memcmp(ours, theirs, sizeof in) == 0, "bcast of types %d", which);
    cases += 5;
  }
  MPI_Type_free(&gaps), MPI_Type_free(&plain), MPI_Type_free(&pair_type), MPI_Type_free(&reversed);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  static const char *RULES[] = {
      "allgather=shm; allreduce=shm; alltoall=locality(node); bcast=shm",
      "allgather=bruck(2); allreduce=recursive-doubling; alltoall=bruck(2); bcast=sparbit",
  };
  for (int rules = 0; rules < 2; rules++) {
    MUST(bruckner_set_algorithms(comm, RULES[rules]));
    built_in();
    user_operations();
    moved();
  }
  MPI_Comm_free(&comm);
  return finish();
}
