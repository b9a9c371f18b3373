/* How long calls take after so many have been made, and all of them.

   watching COLLECTIVE BYTES BEFORE AFTER: makes calls, then measures as many as are asked for, by the window of 64. Rank 0 prints the
   microseconds of a call in the middle one of these windows. Calls move data, or add integers: what serves them may change.

   And what looks cost, as a part of all. A look begins about every 256 * 4^k calls; by how much the
   windows around it take longer than one of the last ones usually does, and those before the last look, is its price. Nothing else in
   the process differs, and other launches do not come into it. */
#include "common.h"

#define WINDOW 64
#define AROUND 8

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double middle_of(const double *times, int count) {
  double *sorted = malloc(count * sizeof *sorted);
  memcpy(sorted, times, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, ascending);
  double found = sorted[count / 2];
  free(sorted);
  return found;
}

static double cost(const double *windows, int count) {
  if (count < 256) return 0;
  double usual = middle_of(windows + count / 2, count - count / 2), excess = 0, all = 0;
  for (int at = 0; at < count; at++) all += windows[at];
  int from = 0;
  for (long look = 256; look / WINDOW + AROUND < count / 2; look *= 4) {
    int at = look / WINDOW - 1;
    if (at > from) excess += (middle_of(windows + from, at - from) - usual) * (at - from);
    for (from = at; from < at + AROUND; from++) excess += windows[from] - usual;
  }
  return excess / all;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char *what = argv[1];
  int bytes = atoi(argv[2]), before = atoi(argv[3]), after = atoi(argv[4]), count = bytes / 8;
  long *in = calloc(size, bytes), *out = calloc(size, bytes);
  int windows = 0;
  double start = 0, *ends = calloc((before + after) / WINDOW + 1, sizeof *ends);
  /* New processes may share a core until the system has seen that they are busy. */
  for (start = MPI_Wtime(); MPI_Wtime() - start < 0.1;) continue;
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  for (int call = 0; call < before + after; call++) {
    if (call % WINDOW == WINDOW - 1) ends[windows++] = MPI_Wtime();
    if (!strcmp(what, "allgather")) MPI_Allgather(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
    else if (!strcmp(what, "alltoall")) MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, MPI_COMM_WORLD);
    else if (!strcmp(what, "allreduce")) MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    else MPI_Reduce_scatter_block(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  }
  for (int at = windows - 1; at >= 0; at--) ends[at] -= at ? ends[at - 1] : start;
  int from = before / WINDOW + 1;
  if (from >= windows) {
    if (rank == 0) fprintf(stderr, "watching: AFTER is too small; %d is enough\n", 2 * WINDOW);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  double took = middle_of(ends + from, windows - from) / WINDOW, most;
  MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("took %.3f cost %.5f\n", most * 1e6, cost(ends, windows));
  return MPI_Finalize();
}
