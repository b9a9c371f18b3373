/* Checks that ranks run on several nodes with a delay between them. across NODES MICROSECONDS: there are NODES host names;
   according to MPI, exactly the ranks of one host share memory; and an allreduce takes at least MICROSECONDS, because its
   messages must cross the wire. */
#define _GNU_SOURCE
#include "common.h"
#include <unistd.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int nodes = argc > 1 ? atoi(argv[1]) : 1;
  double least = argc > 2 ? atof(argv[2]) : 0;

  char mine[64] = "", (*hosts)[64] = malloc(64 * size);
  gethostname(mine, sizeof mine - 1);
  MPI_Allgather(mine, 64, MPI_CHAR, hosts, 64, MPI_CHAR, MPI_COMM_WORLD);
  int different = 0, same = 0;
  for (int r = 0; r < size; r++) {
    int seen = 0;
    for (int q = 0; q < r; q++) seen |= !strcmp(hosts[q], hosts[r]);
    different += !seen;
    same += !strcmp(mine, hosts[r]);
  }
  EXPECT(different == nodes, "%d hosts, not %d", different, nodes);
  MPI_Comm near;
  int sharers;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
  MPI_Comm_size(near, &sharers);
  EXPECT(sharers == same, "%d ranks share memory, %d have this host's name", sharers, same);
  cases += 2;

  /* One after the other: each begins when the one before has come over the wire. */
  enum { TIMES = 40 };
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < TIMES; i++) {
    long in = rank + i, out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == (long)size * i + (long)size * (size - 1) / 2, "allreduce %d: %ld", i, out);
    cases++;
  }
  double each = (MPI_Wtime() - start) / TIMES * 1e6;
  /* A rank may be late to the first. */
  EXPECT(each >= least * (TIMES - 1) / TIMES, "an allreduce takes %.0f us", each);
  if (rank == 0) printf("an allreduce takes %.0f us\n", each);
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
