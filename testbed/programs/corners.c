/* Rare legal calls, and errors that the library must leave to the MPI. 2 ranks or more; run with the library preloaded. */
#include "plain.h"

/* Types without gaps whose parts are sent in another order than they lie in, or twice. */
static void order(void) {
  int ones[3] = {1, 1, 1}, swapped[2] = {1, 0}, repeated[3] = {0, 0, 2}, counts[64], places[64];
  MPI_Datatype pair, triple;
  MPI_Type_indexed(2, ones, swapped, MPI_INT, &pair);
  MPI_Type_indexed(3, ones, repeated, MPI_INT, &triple);
  MPI_Type_commit(&pair), MPI_Type_commit(&triple);
  for (int r = 0; r < size; r++) counts[r] = 1, places[r] = r;
  for (int again = 0; again < 8; again++) {
    int mine[3 * 64], out[3 * 64];
    for (int i = 0; i < 3 * 64; i++) mine[i] = 1000 * rank + i;
    MPI_Allgather(mine, 1, pair, out, 2, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(out[2 * r] == 1000 * r + 1 && out[2 * r + 1] == 1000 * r, "order: a pair sent by %d", r);
    MPI_Allgather(mine, 2, MPI_INT, out, 1, pair, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(out[2 * r] == 1000 * r + 1 && out[2 * r + 1] == 1000 * r, "order: a pair received from %d", r);
    MPI_Allgather(mine, 1, triple, out, 3, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++)
      EXPECT(out[3 * r] == 1000 * r && out[3 * r + 1] == 1000 * r && out[3 * r + 2] == 1000 * r + 2, "order: a triple sent by %d", r);
    MPI_Alltoall(mine, 1, pair, out, 2, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(out[2 * r] == 1000 * r + 2 * rank + 1, "order: a pair from %d to %d", r, rank);
    MPI_Alltoallv(mine, counts, places, pair, out, counts, places, pair, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(out[2 * r] == 1000 * r + 2 * rank, "order: a pair from %d to %d, and back", r, rank);
    int root = again % size;
    if (rank == root) MPI_Bcast(mine, 1, pair, root, MPI_COMM_WORLD);
    else {
      MPI_Bcast(out, 2, MPI_INT, root, MPI_COMM_WORLD);
      EXPECT(out[0] == 1000 * root + 1 && out[1] == 1000 * root, "order: a pair from the root");
    }
    cases++;
  }
  MPI_Type_free(&pair), MPI_Type_free(&triple);
}

static int astray;
static void careful(void *in, void *inout, int *count, MPI_Datatype *type) {
  (void)type;
  if (((uintptr_t)in | (uintptr_t)inout) % 16) astray++;
  for (int i = 0; i < 2 * *count; i++) ((int64_t *)inout)[i] += ((int64_t *)in)[i];
}

/* A user's operation finds its elements where the compiler would put them, if the MPI itself sees to that. */
static void alignment(void) {
  MPI_Datatype sixteen;
  MPI_Op op;
  MPI_Type_contiguous(16, MPI_BYTE, &sixteen);
  MPI_Type_commit(&sixteen);
  MPI_Op_create(careful, 1, &op);
  __attribute__((aligned(64))) static int64_t in[16], out[16];
  for (int count = 1; count <= 8; count++) {
    for (int i = 0; i < 16; i++) in[i] = rank + i;
    for (int again = 0; again < 5; again++) NATIVE(Allreduce)(in, out, count, sixteen, op, MPI_COMM_WORLD);
    int natively = astray;
    astray = 0;
    for (int again = 0; again < 8; again++) MPI_Allreduce(in, out, count, sixteen, op, MPI_COMM_WORLD);
    EXPECT(!astray || natively, "alignment: %d operands of %d elements are astray", astray, count);
    for (int i = 0; i < 2 * count; i++) EXPECT(out[i] == (int64_t)size * (size - 1) / 2 + (int64_t)i * size, "alignment: a wrong sum");
    astray = 0;
    cases++;
  }
  MPI_Op_free(&op);
  MPI_Type_free(&sixteen);
}

static void idle(void *in, void *inout, int *count, MPI_Datatype *type) { (void)in, (void)inout, (void)count, (void)type; }

/* Elements without data: nothing is read or written. */
static void emptiness(void) {
  MPI_Datatype empty;
  MPI_Op op;
  MPI_Type_contiguous(0, MPI_INT, &empty);
  MPI_Type_commit(&empty);
  MPI_Op_create(idle, 1, &op);
  char in[256], out[256];
  memset(in, 1, sizeof in), memset(out, 2, sizeof out);
  for (int again = 0; again < 6; again++) {
    MPI_Allreduce(in, out, 100, empty, op, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(in, out, 20, empty, op, MPI_COMM_WORLD);
    MPI_Allgather(in, 50, empty, out, 50, empty, MPI_COMM_WORLD);
    MPI_Bcast(out, 100, empty, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 256; i++) EXPECT(in[i] == 1 && out[i] == 2, "emptiness: byte %d was written", i);
    cases++;
  }
  MPI_Op_free(&op);
  MPI_Type_free(&empty);
}

/* Types with addresses in them, counted from MPI_BOTTOM. */
static void bottom(void) {
  static int a, b, all[2 * 64];
  MPI_Datatype both;
  int ones[2] = {1, 1};
  MPI_Aint places[2];
  MPI_Get_address(&a, &places[0]), MPI_Get_address(&b, &places[1]);
  MPI_Type_create_hindexed(2, ones, places, MPI_INT, &both);
  MPI_Type_commit(&both);
  for (int again = 0; again < 8; again++) {
    int root = again % size;
    a = rank == root ? 5 : -1, b = rank == root ? 6 : -1;
    MPI_Bcast(MPI_BOTTOM, 1, both, root, MPI_COMM_WORLD);
    EXPECT(a == 5 && b == 6, "bottom: %d %d", a, b);
    a = rank, b = 2 * rank;
    MPI_Allgather(MPI_BOTTOM, 1, both, all, 2, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(all[2 * r] == r && all[2 * r + 1] == 2 * r, "bottom: gathered %d %d", all[2 * r], all[2 * r + 1]);
    cases++;
  }
  MPI_Type_free(&both);
}

static int raised;
static void handler(MPI_Comm *comm, int *code, ...) { (void)comm, (void)code, raised++; }

/* Operations that are not defined for a type, and no communicator: as often, and with as much success, as natively. */
static void undefined(void) {
  MPI_Comm comm;
  MPI_Errhandler ours, before;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)handler, &ours);
  MPI_Comm_set_errhandler(comm, ours);
  struct {
    MPI_Datatype type;
    MPI_Op op;
  } pairs[] = {{MPI_LONG_DOUBLE, MPI_BAND}, {MPI_WCHAR, MPI_SUM}, {MPI_LONG_DOUBLE_INT, MPI_SUM}, {MPI_LONG_DOUBLE, MPI_MINLOC},
               {MPI_INT, MPI_REPLACE},      {MPI_INT, MPI_NO_OP}, {MPI_FLOAT, MPI_BXOR},          {MPI_PACKED, MPI_MAX}};
  char in[64] = {0}, out[64];
  for (int i = 0; i < 6; i++) MPI_Barrier(comm);
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    raised = 0;
    int code = MPI_Allreduce(in, out, 1, pairs[i].type, pairs[i].op, comm), ours_raised = raised;
    raised = 0;
    int native = NATIVE(Allreduce)(in, out, 1, pairs[i].type, pairs[i].op, comm);
    EXPECT(!code == !native && ours_raised == raised, "undefined: pair %d: %d, raised %d times; natively %d, %d times", (int)i, code,
           ours_raised, native, raised);
    cases++;
  }
#ifndef OPEN_MPI
  /* No buffer, where there was one before. Open MPI itself crashes. */
  int mine = rank, sum;
  for (int i = 0; i < 6; i++) MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
  raised = 0;
  int code = MPI_Allreduce(NULL, &sum, 1, MPI_INT, MPI_SUM, comm), told = raised;
  raised = 0;
  int native = NATIVE(Allreduce)(NULL, &sum, 1, MPI_INT, MPI_SUM, comm);
  EXPECT(!code == !native && told == raised, "undefined: no buffer: %d, raised %d times; natively %d, %d times", code, told, native, raised);
  cases++;
#endif
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, ours);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, ours);
  raised = 0;
  MPI_Barrier(MPI_COMM_NULL);
  int ours_raised = raised;
  raised = 0;
  NATIVE(Barrier)(MPI_COMM_NULL);
  EXPECT(ours_raised == raised, "undefined: no communicator is told %d times instead of %d", ours_raised, raised);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, before);
  MPI_Errhandler_free(&ours), MPI_Errhandler_free(&before);
  MPI_Comm_free(&comm);
}

static long kilobytes(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) abort();
  fclose(file);
  return 4 * resident;
}

/* A size that never comes again takes nothing for good. Where all are served, their plans are bounded by their number. */
static void sizes(void) {
  enum { FIRST = 20000, MANY = 10000 };
  static char data[FIRST + MANY];
  const char *mode = getenv("BRUCKNER");
  if (mode && strcmp(mode, "always") == 0) return;
  memset(data, rank, sizeof data);
  for (int i = 0; i < 2000; i++) MPI_Bcast(data, FIRST - i, MPI_CHAR, 0, MPI_COMM_WORLD);
  long before = kilobytes();
  for (int i = 0; i < MANY; i++) MPI_Bcast(data, FIRST + i, MPI_CHAR, 0, MPI_COMM_WORLD);
  long more = kilobytes() - before;
  EXPECT(more < 1500, "sizes: %ld kB more", more);
  cases++;
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  order(), alignment(), emptiness(), bottom(), undefined(), sizes();
  return finish();
}
