/* anew [quick]: cost of objects that programs make for each call: a derived type without gaps, as libraries use for large
   counts, and a persistent operation. Compares MPI_* with the MPI's own functions in alternating blocks, on 2 ranks; `quick`
   measures a quarter of the blocks. */
#include "plain.h"
#define bruckner_barrier NATIVE(Barrier)
#define CHECK_H
#include "compare.h"

enum { MOST = 1000000, MEMBERS = 300 };
static int elements;
static double *in, *out;
static int64_t mine[8], sum[8];

#define WITH_NEW_TYPE(call)                                      \
  do {                                                           \
    MPI_Datatype type;                                           \
    MPI_Type_contiguous(elements, MPI_DOUBLE, &type);            \
    MPI_Type_commit(&type);                                      \
    call;                                                        \
    MPI_Type_free(&type);                                        \
  } while (0)

static void ours_bcast(void) { WITH_NEW_TYPE(MPI_Bcast(in, 1, type, 0, MPI_COMM_WORLD)); }
static void native_bcast(void) { WITH_NEW_TYPE(NATIVE(Bcast)(in, 1, type, 0, MPI_COMM_WORLD)); }
static void ours_allgather(void) { WITH_NEW_TYPE(MPI_Allgather(in, 1, type, out, 1, type, MPI_COMM_WORLD)); }
static void native_allgather(void) {
  WITH_NEW_TYPE(NATIVE(Allgather)(in, 1, type, out, 1, type, MPI_COMM_WORLD));
}
/* Of as many members as it has doubles. */
static void new_struct(MPI_Datatype *type) {
  static int lengths[MEMBERS];
  static MPI_Aint at[MEMBERS];
  static MPI_Datatype types[MEMBERS];
  for (int i = 0; i < MEMBERS; i++) lengths[i] = 1, at[i] = 8 * i, types[i] = MPI_DOUBLE;
  MPI_Type_create_struct(MEMBERS, lengths, at, types, type);
  MPI_Type_commit(type);
}

/* A duplicate of a datatype that is not simple, made once. */
static MPI_Datatype duplicate;
static void ours_duplicate(void) { MPI_Allgather(in, 1, duplicate, out, 1, duplicate, MPI_COMM_WORLD); }
static void native_duplicate(void) { NATIVE(Allgather)(in, 1, duplicate, out, 1, duplicate, MPI_COMM_WORLD); }

static void ours_init(void) {
  MPI_Request request;
  MPI_Allreduce_init(mine, sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  MPI_Request_free(&request);
}
static void native_init(void) {
  MPI_Request request;
  NATIVE(Allreduce_init)(mine, sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  NATIVE(Request_free)(&request);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) BLOCKS = 25;
  in = calloc(MOST, sizeof *in), out = calloc(MOST * (size_t)size, sizeof *out);
  static const int sizes[] = {1000, 10000, 125000, MOST};
  for (int i = 0; i < 4; i++) {
    elements = sizes[i];
    char name[32];
    sprintf(name, "type-bcast-%d", elements * 8);
    compare(name, elements * 8, ours_bcast, native_bcast, 1e6);
    sprintf(name, "type-allgather-%d", elements * 8);
    compare(name, elements * 8, ours_allgather, native_allgather, 1e6);
  }
  MPI_Datatype structure;
  new_struct(&structure);
  MPI_Type_dup(structure, &duplicate);
  compare("duplicate", MEMBERS * 8, ours_duplicate, native_duplicate, 1e6);
  compare("init", 8, ours_init, native_init, 1e6);
  return finish();
}
