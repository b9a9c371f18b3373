/* Results of floating-point reductions, and the buffer of a broadcast's root.

   1. The maximum and minimum of NaN, signed zeros and numbers have the same bits on all ranks, with every algorithm.
   2. The buffer of a broadcast's root is only read: it is in memory that cannot be written. Dense and strided, blocking and
      persistent.
   3. Fortran's pair types, which are recognised by their size. */
#include "plain.h"
#include <math.h>
#include <sys/mman.h>
#ifdef OPEN_MPI
#if OMPI_MAJOR_VERSION < 5
#include "extensions.h"
#endif
#endif

static void same_on_all(const void *bits, int bytes, const char *what) {
  char all[64 * 16];
  NATIVE(Allgather)(bits, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
  for (int i = 1; i < size; i++) EXPECT(memcmp(all, all + i * bytes, bytes) == 0, "%s: other bits on rank %d than on rank 0", what, i);
  cases++;
}

static void extremes(void) {
  static const double VALUES[5][8] = {{0.0, -0.0, 0.0, -0.0, -0.0, 0.0, -0.0, 0.0},
                                      {-0.0, 0.0, -0.0, 0.0, 0.0, -0.0, 0.0, 0.0},
                                      {1, NAN, 2, 3, 4, 5, 6, 7},
                                      {3, 1, NAN, 2, 0, NAN, 5, 4},
                                      {NAN, -1, -2, NAN, -3, -4, -5, -6}};
  for (int k = 0; k < 5; k++)
    for (int which = 0; which < 2; which++) {
      MPI_Op op = which ? MPI_MIN : MPI_MAX, located = which ? MPI_MINLOC : MPI_MAXLOC;
      double x = VALUES[k][rank % 8], y = -7;
      MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
      same_on_all(&y, sizeof y, "double");
      float a = (float)x, b = -7;
      MPI_Allreduce(&a, &b, 1, MPI_FLOAT, op, MPI_COMM_WORLD);
      same_on_all(&b, sizeof b, "float");
      struct {
        float value;
        int at;
      } p = {(float)x, rank}, q = {0};
      MPI_Allreduce(&p, &q, 1, MPI_FLOAT_INT, located, MPI_COMM_WORLD);
      same_on_all(&q, sizeof q, "float and index");
    }
}

static void kept(int kinds) {
  MPI_Datatype strided;
  MPI_Type_vector(8, 1, 2, MPI_DOUBLE, &strided);
  MPI_Type_commit(&strided);
  double *data = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int root = 0; root < size; root++)
    for (int kind = 0; kind < kinds; kind++)
      for (int again = 0; again < 6; again++) {
        int count = kind == 0 ? 1 : kind == 1 ? 16 : kind == 2 ? 1000 : 7;
        for (int i = 0; i < 8192; i++) data[i] = rank == root ? i + again : -1;
        if (rank == root) mprotect(data, 1 << 16, PROT_READ);
        MPI_Datatype type = kind == 0 ? strided : MPI_DOUBLE;
        if (kind < 3) MPI_Bcast(data, count, type, root, MPI_COMM_WORLD);
        else {
          MPI_Request request;
          MPI_Bcast_init(data, count, type, root, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
          MPI_Start(&request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
          MPI_Request_free(&request);
        }
        if (rank == root) mprotect(data, 1 << 16, PROT_READ | PROT_WRITE);
        int last = kind == 0 ? 14 : count - 1;
        EXPECT(data[0] == again && data[last] == last + again, "a broadcast of kind %d brought %g", kind, data[last]);
        EXPECT(kind != 0 || rank == root || data[1] == -1, "a broadcast wrote into a gap");
        cases++;
      }
  munmap(data, 1 << 16);
  MPI_Type_free(&strided);
}

static void pairs(void) {
  int bytes = 0;
  MPI_Type_size(MPI_2INTEGER, &bytes);
  if (bytes == 8) {
    int p[2] = {rank == 1 ? 9 : rank, 100 + rank}, q[2] = {0};
    MPI_Allreduce(p, q, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD);
    EXPECT(q[0] == 9 && q[1] == 101, "MPI_2INTEGER: %d at %d", q[0], q[1]);
    cases++;
  }
  MPI_Type_size(MPI_2DOUBLE_PRECISION, &bytes);
  if (bytes == 16) {
    double p[2] = {rank == 1 ? -9 : rank, 100 + rank}, q[2] = {0};
    MPI_Allreduce(p, q, 1, MPI_2DOUBLE_PRECISION, MPI_MINLOC, MPI_COMM_WORLD);
    EXPECT(q[0] == -9 && q[1] == 101, "MPI_2DOUBLE_PRECISION: %g at %g", q[0], q[1]);
    cases++;
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  extremes();
  /* Persistent broadcasts of MPIs without a hook are their own. */
  kept(argc > 1 && !strcmp(argv[1], "no requests") ? 3 : 4);
  pairs();
  return finish();
}
