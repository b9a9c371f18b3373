/* An 8-byte allreduce on one node against a bare exchange of flags: as little as ranks with shared memory can do. */
#include "compare.h"
#include <stdatomic.h>

struct cell {
  _Alignas(128) atomic_ulong flag;
  double value;
};

static struct cell *cells;
static unsigned long execution;
static double in, out;
static MPI_Comm comm;

static void ours(void) { bruckner_allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comm); }

static void bare(void) {
  struct cell *half = cells + (++execution & 1) * size;
  half[rank].value = in;
  atomic_store_explicit(&half[rank].flag, execution, memory_order_release);
  double sum = 0;
  for (int i = 0; i < size; i++) {
    while (atomic_load_explicit(&half[i].flag, memory_order_acquire) < execution) __builtin_ia32_pause();
    sum += half[i].value;
  }
  out = sum;
}

/* Each call from a barrier to the end of the last rank. */
enum { REPETITIONS = 200 };

static work single;

static double from_barrier(void) {
  static double mine[REPETITIONS], most[REPETITIONS];
  for (int i = 0; i < REPETITIONS; i++) {
    bruckner_barrier(MPI_COMM_WORLD);
    double start = now();
    single();
    mine[i] = now() - start;
  }
  PMPI_Allreduce(mine, most, REPETITIONS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  qsort(most, REPETITIONS, sizeof(double), by_size);
  return most[REPETITIONS / 2];
}

static void compare_from_barrier(const char *name, work a, work b) {
  static double ratios[MOST_BLOCKS], times_a[MOST_BLOCKS], times_b[MOST_BLOCKS];
  unsigned seed = 54321;
  for (int i = 0; i < BLOCKS; i++) {
    seed = seed * 1103515245 + 12345;
    for (int k = 0; k < 2; k++) {
      int first = (seed >> 16 & 1) == k;
      single = first ? a : b;
      (first ? times_a : times_b)[i] = from_barrier();
    }
    ratios[i] = times_a[i] / times_b[i];
  }
  tell(name, 8, ratios, times_a, times_b);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Win window;
  MPI_Aint bytes = rank == 0 ? 2 * size * sizeof(struct cell) : 0;
  int unit;
  void *memory;
  MUST(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &memory, &window));
  MUST(MPI_Win_shared_query(window, 0, &bytes, &unit, &memory));
  cells = (struct cell *)(((uintptr_t)memory + 127) / 128 * 128);
  if (rank == 0) memset(memory, 0, bytes);
  MPI_Barrier(comm);
  in = rank + 1;
  ours();
  double sum = out;
  bare();
  EXPECT(sum == size * (size + 1) / 2 && out == sum, "%g by the library, %g by flags", sum, out);
  compare("allreduce:back-to-back", 8, ours, bare, 2e6);
  compare_from_barrier("allreduce:from-a-barrier", ours, bare);
  MPI_Win_free(&window);
  MPI_Comm_free(&comm);
  return finish();
}
