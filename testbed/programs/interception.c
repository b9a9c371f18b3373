/* interception [quick]: overhead of interception where the choice is native: MPI_* against the MPI's own functions, 8 bytes, 2 ranks,
   in alternating blocks; `quick` measures a quarter of the blocks. */
#include "plain.h"
#define bruckner_barrier NATIVE(Barrier)
#define CHECK_H
#include "compare.h"

static int64_t in[8], out[8];
static const int one[] = {1, 1}, places[] = {0, 1};
/* A communicator that has nothing but calls that are never served. */
static MPI_Comm alone;
static void ours_allreduce(void) { MPI_Allreduce(in, out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); }
static void native_allreduce(void) { NATIVE(Allreduce)(in, out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); }
static void ours_allgather(void) { MPI_Allgather(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, MPI_COMM_WORLD); }
static void native_allgather(void) { NATIVE(Allgather)(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, MPI_COMM_WORLD); }
static void ours_allgatherv(void) {
  MPI_Allgatherv(in, 1, MPI_INT64_T, out, one, places, MPI_INT64_T, MPI_COMM_WORLD);
}
static void native_allgatherv(void) {
  NATIVE(Allgatherv)(in, 1, MPI_INT64_T, out, one, places, MPI_INT64_T, MPI_COMM_WORLD);
}
static void ours_reduce_scatter(void) { MPI_Reduce_scatter(in, out, one, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); }
static void native_reduce_scatter(void) {
  NATIVE(Reduce_scatter)(in, out, one, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}
static void ours_nothing(void) { MPI_Allreduce(in, out, 0, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); }
static void native_nothing(void) { NATIVE(Allreduce)(in, out, 0, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); }
static void ours_alltoall(void) { MPI_Alltoall(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, MPI_COMM_WORLD); }
static void native_alltoall(void) { NATIVE(Alltoall)(in, 1, MPI_INT64_T, out, 1, MPI_INT64_T, MPI_COMM_WORLD); }
static void ours_bcast(void) { MPI_Bcast(in, 1, MPI_INT64_T, 0, alone); }
static void native_bcast(void) { NATIVE(Bcast)(in, 1, MPI_INT64_T, 0, alone); }
static void ours_reduce(void) { MPI_Reduce(in, out, 1, MPI_INT64_T, MPI_SUM, 0, alone); }
static void native_reduce(void) { NATIVE(Reduce)(in, out, 1, MPI_INT64_T, MPI_SUM, 0, alone); }
static void ours_alltoallv(void) { MPI_Alltoallv(in, one, places, MPI_INT64_T, out, one, places, MPI_INT64_T, alone); }
static void native_alltoallv(void) {
  NATIVE(Alltoallv)(in, one, places, MPI_INT64_T, out, one, places, MPI_INT64_T, alone);
}
static void ours_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void native_barrier(void) { NATIVE(Barrier)(MPI_COMM_WORLD); }

int main(int argc, char **argv) {
  /* As most programs do: without threads. */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) BLOCKS = 25;
  compare("allreduce", 8, ours_allreduce, native_allreduce, 2e6);
  compare("allgather", 8, ours_allgather, native_allgather, 2e6);
  compare("allgatherv", 8, ours_allgatherv, native_allgatherv, 2e6);
  compare("reduce_scatter", 8, ours_reduce_scatter, native_reduce_scatter, 2e6);
  compare("nothing", 0, ours_nothing, native_nothing, 2e5);
  compare("alltoall", 8, ours_alltoall, native_alltoall, 2e6);
  MPI_Comm_dup(MPI_COMM_WORLD, &alone);
  compare("bcast", 8, ours_bcast, native_bcast, 2e6);
  compare("reduce", 8, ours_reduce, native_reduce, 2e6);
  compare("alltoallv", 8, ours_alltoallv, native_alltoallv, 2e6);
  MPI_Comm_free(&alone);
  compare("barrier", 8, ours_barrier, native_barrier, 2e6);
  return finish();
}
