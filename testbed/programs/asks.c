/* Functions of the C API that are not documented as collective must not communicate: one rank calls them while the others wait
   until it is done. */
#include "check.h"

int main(int argc, char **argv) {
  begin(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  char text[200], family[200];
  long long value;
  if (rank == 0) {
    strcpy(text, "something");
    MUST(bruckner_algorithm(comm, "allreduce", text, sizeof text));
    EXPECT(text[0] == 0, "there was no call, and the algorithm is %s", text);
    MUST(bruckner_about(text, sizeof text, family, sizeof family));
    MUST(bruckner_constant("MPI_BYTE", &value));
    for (int other = 1; other < size; other++) MPI_Send(0, 0, MPI_BYTE, other, 1, MPI_COMM_WORLD);
  } else EXPECT(hears_from(0, 1), "a question waits for others");
  cases++;
  int64_t mine = rank, sum;
  MUST(bruckner_allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, comm));
  EXPECT(sum == (int64_t)size * (size - 1) / 2, "a sum is %ld", (long)sum);
  if (rank == 0) {
    MUST(bruckner_algorithm(comm, "allreduce", text, sizeof text));
    EXPECT(text[0] != 0, "there was a call, and no algorithm");
    for (int other = 1; other < size; other++) MPI_Send(0, 0, MPI_BYTE, other, 2, MPI_COMM_WORLD);
  } else EXPECT(hears_from(0, 2), "a question waits for others");
  cases++;
  MPI_Comm_free(&comm);
  return finish();
}
