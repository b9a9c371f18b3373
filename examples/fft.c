/* A Fourier transform of a square, in which each rank has some rows: rows, a transposition by MPI_Alltoall, rows again.

     mpicc -O2 examples/fft.c -o fft -lm
     mpirun -n 4 bruckner exec ./fft

   It transforms waves there and back, and prints how far what comes back is from what went. The side is a power of two and a multiple of the
   number of ranks. */
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 20 };

typedef double complex Number;

static int rank, size, side, rows;
static Number *packed, *received;

/* One row, in place; sign -1 goes there, and 1 back. */
static void transform(Number *row, int sign) {
  for (int i = 1, j = 0; i < side; i++) {
    int bit = side >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j |= bit;
    if (i < j) {
      Number other = row[i];
      row[i] = row[j], row[j] = other;
    }
  }
  for (int width = 2; width <= side; width *= 2) {
    Number step = cexp(sign * 2 * M_PI * I / width);
    for (int from = 0; from < side; from += width) {
      Number turn = 1;
      for (int at = from; at < from + width / 2; at++, turn *= step) {
        Number a = row[at], b = turn * row[at + width / 2];
        row[at] = a + b, row[at + width / 2] = a - b;
      }
    }
  }
}

/* Rows become columns: each rank gives every other the part of its rows that becomes the other's. */
static void transpose(Number *mine) {
  for (int to = 0, at = 0; to < size; to++)
    for (int column = to * rows; column < (to + 1) * rows; column++)
      for (int row = 0; row < rows; row++) packed[at++] = mine[row * side + column];
  MPI_Alltoall(packed, 2 * rows * rows, MPI_DOUBLE, received, 2 * rows * rows, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int from = 0, at = 0; from < size; from++)
    for (int row = 0; row < rows; row++)
      for (int column = from * rows; column < (from + 1) * rows; column++) mine[row * side + column] = received[at++];
}

static void both(Number *mine, int sign) {
  for (int turn = 0; turn < 2; turn++) {
    for (int row = 0; row < rows; row++) transform(mine + row * side, sign);
    transpose(mine);
  }
}

static Number wave(int row, int column) {
  return cexp(2 * M_PI * I * (3 * row + 5 * column) / side) + 0.5 * cos(2 * M_PI * 7 * row / side);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  side = argc > 1 ? atoi(argv[1]) : 64;
  if (side % size || side & (side - 1)) {
    if (rank == 0) fprintf(stderr, "%d is no power of two, or no multiple of %d ranks\n", side, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  rows = side / size;
  size_t room = (size_t)rows * side * sizeof(Number);
  Number *mine = malloc(room);
  packed = malloc(room), received = malloc(room);
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < side; column++) mine[row * side + column] = wave(rank * rows + row, column);
  double peak = 0, error = 0;
  for (int time = 0; time < TIMES; time++) {
    both(mine, -1);
    for (int at = 0; at < rows * side; at++) peak = fmax(peak, cabs(mine[at]) / side / side);
    both(mine, 1);
    for (int at = 0; at < rows * side; at++) mine[at] /= (double)side * side;
  }
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < side; column++)
      error = fmax(error, cabs(mine[row * side + column] - wave(rank * rows + row, column)));
  double found[2] = {peak, error}, most[2];
  MPI_Allreduce(found, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0)
    printf("%d x %d on %d ranks, %d times there and back: the largest wave is %.6f, %s\n", side, side, size, TIMES, most[0],
           most[1] < 1e-10 ? "and what comes back is right" : "WHAT COMES BACK IS WRONG");
  int right = most[1] < 1e-10 && fabs(most[0] - 1) < 1e-10;
  MPI_Finalize();
  return right ? 0 : 1;
}
