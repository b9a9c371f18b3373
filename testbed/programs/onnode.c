/* Compares the algorithms that the library chooses on one node with the MPI's own collectives. */
#include "compare.h"

static char *in, *out;
static int bytes;
static MPI_Comm comm;

static void ours_allreduce(void) { bruckner_allreduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, comm); }
static void native_allreduce(void) { PMPI_Allreduce(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, comm); }
static void ours_allgather(void) { bruckner_allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm); }
static void native_allgather(void) { PMPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm); }
static void ours_scatter(void) { bruckner_reduce_scatter_block(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, comm); }
static void native_scatter(void) { PMPI_Reduce_scatter_block(in, out, bytes / 8, MPI_DOUBLE, MPI_SUM, comm); }
static void ours_alltoall(void) { bruckner_alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm); }
static void native_alltoall(void) { PMPI_Alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm); }

int main(int argc, char **argv) {
  begin(&argc, &argv);
  int crowded = argc > 1 && strcmp(argv[1], "crowded") == 0;
  double time = crowded ? 2e7 : 2e6;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  static const int SIZES[] = {8, 64, 512, 4096, 16384, 65536};
  for (int i = 0; i < (crowded ? 1 : 6); i++) {
    bytes = SIZES[i];
    in = guarded((size_t)size * bytes), out = guarded((size_t)size * bytes);
    for (int k = 0; k < size * bytes / 8; k++) ((double *)in)[k] = rank + k;
    compare("allreduce", bytes, ours_allreduce, native_allreduce, time);
    if (!crowded) {
      compare("allgather", bytes, ours_allgather, native_allgather, time);
      compare("reduce_scatter", bytes, ours_scatter, native_scatter, time);
      compare("alltoall", bytes, ours_alltoall, native_alltoall, time);
    }
    unguard(in), unguard(out);
  }
  MPI_Comm_free(&comm);
  return finish();
}
