/* locked now|from-the-start: locks its memory, as real-time and RDMA programs do, and prints the largest resident memory of
   any rank at the end, in KiB. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "common.h"

static long resident(void) {
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &kib);
  fclose(file);
  return kib;
}

static long in[1 << 16], out[1 << 16];

int main(int argc, char **argv) {
  int now = argc > 1 && !strcmp(argv[1], "now");
  if (!now) EXPECT(!mlockall(MCL_CURRENT | MCL_FUTURE), "memory cannot be locked");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 1 << 16; i++) in[i] = rank + i;
  for (int round = 0; round < 8; round++) {
    if (now && round == 4) EXPECT(!mlockall(MCL_CURRENT), "memory cannot be locked");
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int count = 1; count <= 1 << 16; count *= 4) {
      MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, comm);
      EXPECT(out[count - 1] == size * (size - 1) / 2 + (long)size * (count - 1), "a sum of %d", count);
      cases++;
    }
    MPI_Comm_free(&comm);
  }
  long mine = resident(), most;
  PMPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("resident %ld\n", most);
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
