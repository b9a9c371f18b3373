/* Prints the version and the family of the MPI, as the library detects them. */
#include "bruckner.h"
#include <stdio.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char version[200], family[40];
  int code = bruckner_about(version, sizeof version, family, sizeof family);
  if (rank == 0 && code == 0) printf("%s\n%s\n", version, family);
  if (code != 0) fprintf(stderr, "%s\n", bruckner_last_error());
  MPI_Finalize();
  return code != 0;
}
