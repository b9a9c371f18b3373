/* A Fourier filter by matrices, after the one of Jocksch et al.: blocks of unequal size, by MPI_Reduce_scatter and MPI_Allgatherv.

     mpicc -O2 examples/filter.c -o filter -lm
     mpirun -n 4 bruckner exec ./filter

   A torus has PHI slices, which ranks share out; on each slice a circle of THETA points. Kept are the modes n = 0 and 1 around the torus and
   those m around the circle with |m - n q| <= DELTA. To find a mode, each rank adds up its own slices, and MPI_Reduce_scatter gives ranks the
   sums of some modes each, as many as there are to share out: not all have as many, and with many ranks some have none. They do with
   them what they want, and MPI_Allgatherv gives all modes to everybody, who makes its own slices of them. Waves that are kept must come back as
   they went, and others not at all. */
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PHI = 64, THETA = 48, Q = 2, DELTA = 5, TIMES = 50 };

typedef double complex Number;

static Number wave(int n, int m, int phi, int theta) {
  return cexp(2 * M_PI * I * ((double)n * phi / PHI + (double)m * theta / THETA));
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  enum { MODES = 2 * (2 * DELTA + 1) };
  int n[MODES], m[MODES];
  for (int mode = 0; mode < MODES; mode++) {
    n[mode] = mode / (2 * DELTA + 1);
    m[mode] = n[mode] * Q - DELTA + mode % (2 * DELTA + 1);
  }
  int first = PHI * rank / size, last = PHI * (rank + 1) / size;
  int *counts = malloc(size * sizeof *counts), *places = malloc(size * sizeof *places);
  for (int to = 0; to < size; to++) {
    places[to] = 2 * (MODES * to / size);
    counts[to] = 2 * (MODES * (to + 1) / size) - places[to];
  }
  Number *slices = malloc((size_t)(last - first + 1) * THETA * sizeof *slices), sums[MODES], own[MODES], all[MODES];
  /* Two waves that are kept, and one that is not. */
  for (int phi = first; phi < last; phi++)
    for (int theta = 0; theta < THETA; theta++)
      slices[(phi - first) * THETA + theta] =
          wave(0, 3, phi, theta) + 2 * wave(1, Q + DELTA, phi, theta) + wave(5, 1, phi, theta);
  for (int time = 0; time < TIMES; time++) {
    for (int mode = 0; mode < MODES; mode++) {
      sums[mode] = 0;
      for (int phi = first; phi < last; phi++)
        for (int theta = 0; theta < THETA; theta++)
          sums[mode] += slices[(phi - first) * THETA + theta] * conj(wave(n[mode], m[mode], phi, theta));
    }
    MPI_Reduce_scatter(sums, own, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < counts[rank] / 2; at++) own[at] /= PHI * THETA;
    MPI_Allgatherv(own, counts[rank], MPI_DOUBLE, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int phi = first; phi < last; phi++)
      for (int theta = 0; theta < THETA; theta++) {
        Number sum = 0;
        for (int mode = 0; mode < MODES; mode++) sum += all[mode] * wave(n[mode], m[mode], phi, theta);
        slices[(phi - first) * THETA + theta] = sum;
      }
  }
  double error = 0, worst;
  for (int phi = first; phi < last; phi++)
    for (int theta = 0; theta < THETA; theta++)
      error = fmax(error, cabs(slices[(phi - first) * THETA + theta] - wave(0, 3, phi, theta) -
                               2 * wave(1, Q + DELTA, phi, theta)));
  MPI_Allreduce(&error, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%d modes of %d x %d on %d ranks, %d times: %s\n", MODES, PHI, THETA, size, TIMES,
           worst < 1e-10 ? "what is kept comes back, and nothing else" : "WRONG");
  MPI_Finalize();
  return worst < 1e-10 ? 0 : 1;
}
