/* Checks results of the MPI alone with files that select its algorithms: sums, a non-commutative operation and moved data, at
   the sizes between 64 bytes and 64 KiB at which these files switch algorithms. With `gaps`, also types with gaps, for which
   HAN's allgather in Open MPI 5.0.11 is wrong between nodes even without a file. */
#include "common.h"

/* Products of matrices of whole numbers do not commute. */
typedef struct {
  unsigned a, b, c, d;
} Matrix;
enum { MODULUS = 9973 };

static Matrix times(Matrix p, Matrix q) {
  Matrix r = {(p.a * q.a + p.b * q.c) % MODULUS, (p.a * q.b + p.b * q.d) % MODULUS,
              (p.c * q.a + p.d * q.c) % MODULUS, (p.c * q.b + p.d * q.d) % MODULUS};
  return r;
}
static void multiply(void *left, void *right, int *count, MPI_Datatype *type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((Matrix *)right)[i] = times(((Matrix *)left)[i], ((Matrix *)right)[i]);
}
static Matrix matrix(int of, int i) {
  Matrix m = {(of + 1) * 37 % 101 + i % 7, of * of + 3, (of * 5 + i) % 11, of + 2};
  return m;
}

static void product(int bytes, MPI_Op op, MPI_Datatype type) {
  int count = bytes / (int)sizeof(Matrix), wrong = 0;
  Matrix *in = malloc(bytes), *out = malloc(bytes);
  for (int i = 0; i < count; i++) in[i] = matrix(rank, i);
  MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) {
    Matrix all = matrix(0, i);
    for (int r = 1; r < size; r++) all = times(all, matrix(r, i));
    wrong += memcmp(&all, &out[i], sizeof all) != 0;
  }
  EXPECT(wrong == 0, "product of %d bytes: %d wrong", bytes, wrong);
  free(in), free(out);
  cases++;
}

static void sums(int bytes) {
  int count = bytes / 4, wrong = 0;
  int *in = malloc((size_t)bytes * size), *out = malloc(bytes);
  for (int i = 0; i < count * size; i++) in[i] = rank + i;
  MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) wrong += out[i] != size * i + size * (size - 1) / 2;
  MPI_Reduce_scatter_block(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) wrong += out[i] != size * (rank * count + i) + size * (size - 1) / 2;
  EXPECT(wrong == 0, "sums of %d bytes: %d wrong", bytes, wrong);
  free(in), free(out);
  cases += 2;
}

/* An element of `stride` integers, of which the first counts. */
static void moved(int bytes, int stride, MPI_Datatype type) {
  int count = bytes / 4, wrong = 0;
  int *in = calloc((size_t)count * size * stride, 4), *out = calloc((size_t)count * size, 4);
  for (int i = 0; i < count * size; i++) in[i * stride] = rank * 100000 + i;
  MPI_Allgather(in, count, type, out, count, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != r * 100000 + i;
  MPI_Alltoall(in, count, type, out, count, MPI_INT, MPI_COMM_WORLD);
  for (int r = 0; r < size; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != r * 100000 + rank * count + i;
  EXPECT(wrong == 0, "%d bytes, stride %d: %d wrong", bytes, stride, wrong);
  free(in), free(out);
  cases += 2;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Datatype four, gap;
  MPI_Op op;
  MPI_Type_contiguous(4, MPI_UNSIGNED, &four);
  MPI_Type_commit(&four);
  MPI_Type_create_resized(MPI_INT, 0, 12, &gap);
  MPI_Type_commit(&gap);
  MPI_Op_create(multiply, 0, &op);
  for (int round = 0; round < 6; round++)
    for (int bytes = 64; bytes <= 65536; bytes *= 4) {
      product(bytes, op, four);
      sums(bytes);
      moved(bytes, 1, MPI_INT);
      if (argc > 1) moved(bytes, 3, gap);
    }
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
