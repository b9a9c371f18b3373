/* Conjugate gradients for Poisson's equation on a square: an unmodified MPI program whose time, on many nodes, is in MPI_Allreduce.

     mpicc -O2 examples/cg.c -o cg -lm
     mpirun -n 4 bruckner exec ./cg

   It says whether all ranks have the same bits of every scalar, as they must if they are to stop in the same iteration, and prints the last
   residual in full: two runs print the same. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 192, MOST = 2000 };

static int rank, size, rows;
static long differences;

/* The sum over all ranks, and whether it has the same bits on all of them: bits are compared as integers. */
static double sum(double mine) {
  double all;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  unsigned long bits[2], most[2];
  memcpy(bits, &all, sizeof all);
  bits[1] = ~bits[0];
  MPI_Allreduce(bits, most, 2, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
  differences += most[0] != ~most[1];
  return all;
}

static double dot(const double *a, const double *b) {
  double mine = 0;
  for (int i = SIDE; i < (rows + 1) * SIDE; i++) mine += a[i] * b[i];
  return sum(mine);
}

/* y = A x, where each rank has some rows and one more on either side, which are its neighbours'. */
static void apply(double *x, double *y) {
  int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
  MPI_Sendrecv(x + SIDE, SIDE, MPI_DOUBLE, above, 0, x + (rows + 1) * SIDE, SIDE, MPI_DOUBLE, below, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(x + rows * SIDE, SIDE, MPI_DOUBLE, below, 1, x, SIDE, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int row = 1; row <= rows; row++)
    for (int at = 0; at < SIDE; at++) {
      int i = row * SIDE + at;
      y[i] = 4 * x[i] - x[i - SIDE] - x[i + SIDE] - (at > 0 ? x[i - 1] : 0) - (at < SIDE - 1 ? x[i + 1] : 0);
    }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  rows = SIDE * (rank + 1) / size - SIDE * rank / size;
  size_t room = (size_t)(rows + 2) * SIDE;
  double *x = calloc(room, sizeof *x), *r = calloc(room, sizeof *r), *p = calloc(room, sizeof *p),
         *q = calloc(room, sizeof *q);
  for (int i = SIDE; i < (rows + 1) * SIDE; i++) r[i] = p[i] = 1.0 / (1 + i % 7);
  double rho = dot(r, r), first = rho;
  int iterations = 0;
  while (iterations < MOST && rho > 1e-20 * first) {
    apply(p, q);
    double alpha = rho / dot(p, q);
    for (int i = SIDE; i < (rows + 1) * SIDE; i++) x[i] += alpha * p[i], r[i] -= alpha * q[i];
    double next = dot(r, r), beta = next / rho;
    for (int i = SIDE; i < (rows + 1) * SIDE; i++) p[i] = r[i] + beta * p[i];
    rho = next;
    iterations++;
  }
  double norm = dot(x, x);
  if (rank == 0)
    printf("%d iterations, residual %a, norm %a, %ld differences between ranks\n", iterations, sqrt(rho), sqrt(norm),
           differences);
  return MPI_Finalize();
}
