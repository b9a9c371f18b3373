/* A hand-written allreduce of a long vector on two ranks of one node with the least possible data movement, against the MPI's
   own: each rank reduces one half of the vector and gives it to the other. The other rank's contribution to that half is
   already in shared memory, which an MPI would have to copy there first. So no allreduce of this kind can be much faster. */
#include "compare.h"
#include <stdatomic.h>

static double *in, *out, *given, *taken, *mine, *theirs;
static size_t half;
static atomic_int *own, *other;

static void meet(void) {
  int turn = atomic_load_explicit(own, memory_order_relaxed) + 1;
  atomic_store_explicit(own, turn, memory_order_release);
  while (atomic_load_explicit(other, memory_order_acquire) < turn) __builtin_ia32_pause();
}

/* Two executions in a row use two places, so that one meeting is enough before a place is written again. */
static void by_hand(void) {
  static int execution;
  size_t place = (++execution & 1) * half;
  double *sum = out + rank * half, *part = in + rank * half;
  for (size_t i = 0; i < half; i++) mine[place + i] = sum[i] = part[i] + taken[i];
  meet();
  memcpy(out + !rank * half, theirs + place, half * sizeof(double));
}

static void native(void) { PMPI_Allreduce(in, out, 2 * half, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

int main(int argc, char **argv) {
  begin(&argc, &argv);
  enum { MOST = 1 << 20, LINE = 128 };
  MPI_Win window;
  char *base[2];
  MPI_Win_allocate_shared(LINE + 2 * MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base[0], &window);
  for (int i = 0; i < 2; i++) {
    MPI_Aint bytes;
    int unit;
    MPI_Win_shared_query(window, i ? !rank : rank, &bytes, &unit, &base[i]);
  }
  memset(base[0], 0, LINE + 2 * MOST);
  MPI_Barrier(MPI_COMM_WORLD);
  own = (atomic_int *)base[0], other = (atomic_int *)base[1];
  given = (double *)(base[0] + LINE), taken = (double *)(base[1] + LINE);
  for (size_t bytes = 65536; bytes <= MOST; bytes *= 4) {
    half = bytes / 2 / sizeof(double);
    mine = given + half, theirs = taken + half;
    in = (double *)guarded(bytes), out = (double *)guarded(bytes);
    for (size_t i = 0; i < 2 * half; i++) in[i] = rank + i;
    memcpy(given, in + !rank * half, half * sizeof(double));
    MPI_Barrier(MPI_COMM_WORLD);
    by_hand();
    for (size_t i = 0; i < 2 * half; i++) EXPECT(out[i] == 2.0 * i + 1, "element %zu is %g", i, out[i]);
    compare("allreduce", bytes, by_hand, native, 2e6);
    unguard((char *)in), unguard((char *)out);
  }
  MPI_Win_free(&window);
  return finish();
}
