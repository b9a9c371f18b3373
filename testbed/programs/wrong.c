/* Erroneous calls: where the MPI returns an error, the library returns one of the same class; where the MPI tolerates the
   error, data arrives; and if only one rank makes an error, it must not be the only rank in the MPI's own function. After
   each, correct calls work. Two ranks or more. */
#include "plain.h"

static int a[256], b[4096], counts[64], at[64], listed;

static int class_of(int code) {
  int class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
  return class;
}

static void good(const char *after) {
  for (int i = 0; i < 3; i++) {
    int one = 1, sum = 0, all[64] = {0};
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    EXPECT(sum == size && all[size - 1] == size - 1, "a good call after %s gave %d", after, sum);
  }
}

/* An error that the MPI finds before it talks to anybody. Classes are compared where the MPI's own looks at all. */
#define SAME(what, name, ...)                                                                               \
  do {                                                                                                      \
    int native_ = class_of(NATIVE(name)(__VA_ARGS__)), ours_ = class_of(MPI_##name(__VA_ARGS__));           \
    EXPECT(native_ == ours_, "%s: the MPI says class %d, the library %d", what, native_, ours_);            \
    good(what);                                                                                             \
    cases++;                                                                                                \
  } while (0)

static void errors(void) {
  SAME("a root that is none", Bcast, a, 1, MPI_INT, size, MPI_COMM_WORLD);
  SAME("a negative root", Bcast, a, 1, MPI_INT, -5, MPI_COMM_WORLD);
  SAME("a root of a reduce that is none", Reduce, a, b, 1, MPI_INT, MPI_SUM, size + 3, MPI_COMM_WORLD);
  SAME("no operation", Allreduce, a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
  SAME("an operation that is not defined", Allreduce, a, b, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD);
  SAME("a location of what has none", Allreduce, a, b, 1, MPI_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  SAME("in place to receive", Allgather, a, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, MPI_COMM_WORLD);
  SAME("in place both", Allreduce, MPI_IN_PLACE, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  /* MPICH's own crashes. */
#ifdef OPEN_MPI
  SAME("a broadcast in place", Bcast, MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD);
#endif
  SAME("input and output the same", Allreduce, a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  SAME("input in the output", Allgather, b + rank, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD);
  SAME("a null buffer of nothing", Allreduce, NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  /* MPICH 5 does not look. */
  EXPECT(class_of(MPI_Allreduce(a, b, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) == MPI_ERR_COUNT, "a negative count");
  good("a negative count");
  EXPECT(class_of(MPI_Bcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT, "a negative count of a broadcast");
  good("a negative count of a broadcast");
  cases += 2;
}

/* Some give less than is received, or more, and only they know. */
static void misfits(int wrong, int given) {
  for (int again = 0; again < 5; again++) {
    int mine = rank == wrong || wrong < 0 ? given : 4;
    for (int i = 0; i < 8; i++) a[i] = 100 * rank + 10 * again + i;
    for (int i = 0; i < 4096; i++) b[i] = -1;
    for (int i = 0; i < size; i++) counts[i] = 4, at[i] = 4 * i;
    int code = again % 2 ? MPI_Allgatherv(a, mine, MPI_INT, b, counts, at, MPI_INT, MPI_COMM_WORLD)
                         : MPI_Allgather(a, mine, MPI_INT, b, 4, MPI_INT, MPI_COMM_WORLD);
    EXPECT(class_of(code) == (mine > 4 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "%d given for 4: class %d", mine, class_of(code));
    for (int r = 0; r < size; r++) {
      int arrived = r == wrong || wrong < 0 ? (given < 4 ? given : 4) : 4;
      for (int i = 0; i < arrived; i++)
        EXPECT(b[4 * r + i] == 100 * r + 10 * again + i, "%d given for 4: element %d of rank %d is %d", mine, i, r, b[4 * r + i]);
    }
    EXPECT(b[4 * size] == -1, "beyond the end");
    /* The same between each pair. */
    for (int i = 0; i < size * 8; i++) a[i] = 1000 * rank + i;
    for (int i = 0; i < 4096; i++) b[i] = -1;
    code = MPI_Alltoall(a, mine, MPI_INT, b, 4, MPI_INT, MPI_COMM_WORLD);
    EXPECT(class_of(code) == (mine > 4 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "%d given for 4 to each: class %d", mine, class_of(code));
    for (int r = 0; r < size; r++) {
      int of = r == wrong || wrong < 0 ? given : 4;
      for (int i = 0; i < (of < 4 ? of : 4); i++)
        EXPECT(b[4 * r + i] == 1000 * r + rank * of + i, "%d given for 4 to each: element %d of rank %d is %d", of, i, r, b[4 * r + i]);
    }
    EXPECT(b[4 * size] == -1, "beyond the end");
    good("a misfit");
    cases += 2;
    /* Sizes that differ between each pair; by default the MPI's own serves, and not every MPI looks. */
    if (!listed) continue;
    int sent[64], from[64];
    for (int i = 0; i < size; i++) sent[i] = mine, from[i] = 8 * i;
    for (int i = 0; i < 4096; i++) b[i] = -1;
    code = MPI_Alltoallv(a, sent, from, MPI_INT, b, counts, at, MPI_INT, MPI_COMM_WORLD);
    EXPECT(class_of(code) == (given > 4 ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "%d given for 4 by alltoallv: class %d", given, class_of(code));
    EXPECT(b[4 * size] == -1, "beyond the end");
    good("a misfit of lists");
    cases++;
  }
}

/* Receivers expect more than the root sends: every MPI forgives that, and so does what serves by default. */
static void expecting_more(void) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(version, &length);
  for (int i = 0; i < 30; i++) {
    int n = 1 + i % 7;
    for (int k = 0; k < 64; k++) a[k] = rank ? -1 : i + k;
    MPI_Bcast(a, rank ? 64 : n, MPI_INT, 0, MPI_COMM_WORLD);
    EXPECT(a[n - 1] == i + n - 1, "what was sent did not arrive");
    /* Intel MPI's own writes behind it. */
    EXPECT(!rank || a[n] == -1 || strstr(version, "Intel"), "what was not sent arrived");
    cases++;
  }
  good("an expectation");
}

/* Ranks that are not in the same call, as far as a plan is concerned, in kinds of calls that never came before: where sizes differ
   all get an error, which is more than the MPI says; otherwise all leave it to the MPI, which forgives. */
static void different_calls(void) {
  for (int again = 0; again < 4; again++) {
    long c[64] = {0}, d[64];
    int code = MPI_Allreduce(c, d, rank ? 5 : 9, MPI_LONG, MPI_BXOR, MPI_COMM_WORLD);
    EXPECT(class_of(code) == MPI_ERR_TRUNCATE, "sums of 5 and 9 elements: class %d", class_of(code));
    good("different sizes");
    int x[2] = {rank + again, 1}, y[2] = {-1, -1};
    MPI_Allreduce(x, y, 2, rank ? MPI_INT : MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(y[0] == size * (size - 1) / 2 + size * again && y[1] == size, "a sum of two types is %d", y[0]);
    good("different types");
    cases += 2;
  }
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
  MPI_Aint lower, extent;
  PMPI_Type_get_extent(*type, &lower, &extent);
  for (int i = 0; i < *n; i++) *(int *)((char *)inout + i * extent) += *(int *)((char *)in + i * extent);
}

/* Operations of the user's may differ between ranks, in whether they commute, too; and so may the layouts of their types. */
static void different_operations(void) {
  MPI_Op op;
  MPI_Op_create(add, rank % 2, &op);
  MPI_Datatype spread;
  MPI_Type_create_resized(MPI_INT, 0, 12, &spread);
  MPI_Type_commit(&spread);
  for (int again = 0; again < 6; again++) {
    int in[30], out[30];
    for (int i = 0; i < 30; i++) in[i] = rank + i + again, out[i] = -1;
    MPI_Allreduce(in, out, 5, MPI_INT, op, MPI_COMM_WORLD);
    EXPECT(out[4] == size * (size - 1) / 2 + size * (4 + again), "a sum by different operations is %d", out[4]);
    if (rank == 1) for (int i = 0; i < 5; i++) in[3 * i] = rank + i + again;
    for (int i = 0; i < 30; i++) out[i] = -1;
    MPI_Allreduce(in, out, 5, rank == 1 ? spread : MPI_INT, op, MPI_COMM_WORLD);
    int last = rank == 1 ? 12 : 4;
    EXPECT(out[last] == size * (size - 1) / 2 + size * (4 + again), "a sum of different layouts is %d", out[last]);
    EXPECT(rank != 1 || out[1] == -1, "a gap was written to");
    good("different operations");
    cases += 2;
  }
  MPI_Op_free(&op);
  MPI_Type_free(&spread);
}

/* One rank alone makes calls that are wrong, or that do nothing, on a communicator that was never used: the others never know. */
static void alone(void) {
  for (int which = 0; which < 6; which++) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rank == 0)
      switch (which) {
      case 0: MPI_Bcast(a, 1, MPI_INT, size, comm); break;
      case 1: MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, comm); break;
      case 2: MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, size + 1, comm); break;
      case 3: MPI_Bcast(a, 0, MPI_INT, 0, comm); break;
      case 4: MPI_Reduce(a, b, 0, MPI_INT, MPI_SUM, 0, comm); break;
      default: counts[0] = -1, MPI_Alltoallv(a, counts, at, MPI_INT, b, counts, at, MPI_INT, comm), counts[0] = 1;
      }
    for (int again = 0; again < 8; again++) {
      int mine = rank + again, sum = -1;
      MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
      EXPECT(sum == size * (size - 1) / 2 + size * again, "after a lonely call of kind %d: a sum is %d", which, sum);
    }
    MPI_Comm_free(&comm);
    cases++;
  }
}

/* A root that sends on when its broadcast is done, or a sender of a reduction: receivers may come to both in the other order, as long
   as the MPI lets the others run ahead. */
static void ahead(void) {
  for (int again = 0; again < 8; again++)
    for (int which = 0; which < 2; which++) {
      int early = which ? size - 1 : 0, late = which ? 0 : size - 1, x = again, y = 0;
      if (rank == late) MPI_Recv(&y, 1, MPI_INT, early, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (which) MPI_Reduce(&x, &y, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
      else MPI_Bcast(&x, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (rank == early) MPI_Send(&x, 1, MPI_INT, late, 7, MPI_COMM_WORLD);
      NATIVE(Barrier)(MPI_COMM_WORLD);
      cases++;
    }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int i = 0; i < 3; i++) good("nothing");
  errors();
  listed = argc == 1;
  misfits(1, 2), misfits(0, 3), misfits(-1, 1), misfits(-1, 0);
  misfits(size - 1, 7), misfits(-1, 6);
  if (argc > 1) expecting_more(), ahead();
  alone();
  different_operations();
  different_calls();
  return finish();
}
