/* Compares an 8-byte allreduce on one node with a bare exchange of flags, the least that ranks with shared memory must do. The
   time of a cache line between two cores depends on its home in the machine: an exchange of flags took 150 to 195 ns on
   different pages of one process, occasionally 280 ns. So each pair of blocks uses new memory on both sides: a communicator
   and a page of its own. */
#include <stdatomic.h>

static void move(int block);
#define MOVE move
#include "compare.h"

struct cell {
  _Alignas(128) atomic_ulong flag;
  double value;
};

enum { PLACES = 25, PAGE = 4096 };

static struct place {
  MPI_Comm comm;
  struct cell *cells;
  unsigned long execution;
} places[PLACES], *place = places;
static double in, out;

static void move(int block) { place = &places[block % PLACES]; }

static void ours(void) { bruckner_allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, place->comm); }

static struct cell *raise_own(void) {
  struct cell *half = place->cells + (++place->execution & 1) * size;
  half[rank].value = in;
  atomic_store_explicit(&half[rank].flag, place->execution, memory_order_release);
  return half;
}

static double await(struct cell *cell) {
  while (atomic_load_explicit(&cell->flag, memory_order_acquire) < place->execution) __builtin_ia32_pause();
  return cell->value;
}

/* Everybody looks at all cells. */
static void bare(void) {
  struct cell *half = raise_own();
  double sum = 0;
  for (int i = 0; i < size; i++) sum += await(&half[i]);
  out = sum;
}

/* Everybody leaves its own cell alone: others have taken its line away to read it, and to get it back takes a quarter of the
   time of all. */
static void sparing(void) {
  struct cell *half = raise_own();
  double sum = 0;
  for (int i = 0; i < size; i++) sum += i == rank ? in : await(&half[i]);
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
    move(i);
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
  MPI_Win window;
  MPI_Aint bytes = rank == 0 ? (PLACES + 1) * PAGE : 0;
  int unit;
  void *memory;
  MUST(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window));
  MUST(MPI_Win_shared_query(window, 0, &bytes, &unit, &memory));
  if (rank == 0) memset(memory, 0, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  char *page = (char *)(((uintptr_t)memory + PAGE - 1) / PAGE * PAGE);
  in = rank + 1;
  for (int i = 0; i < PLACES; i++) {
    move(i);
    place->cells = (struct cell *)(page + i * PAGE);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &place->comm));
    ours();
    double sum = out;
    bare();
    double all = out;
    sparing();
    EXPECT(sum == size * (size + 1) / 2 && all == sum && out == sum, "%g by the library, %g and %g by flags", sum,
           all, out);
  }
  compare("allreduce:back-to-back", 8, ours, bare, 2e6);
  compare_from_barrier("allreduce:from-a-barrier", ours, bare);
  compare("own-cell-left-alone:back-to-back", 8, ours, sparing, 2e6);
  compare_from_barrier("own-cell-left-alone:from-a-barrier", ours, sparing);
  MPI_Win_free(&window);
  for (int i = 0; i < PLACES; i++) MPI_Comm_free(&places[i].comm);
  return finish();
}
