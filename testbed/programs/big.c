/* Counts of more than 32 bits: the `_c` functions, which the library has even where the MPI has none. Two ranks, and about
   9 GiB of memory. */
#include "plain.h"

static void *wide(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  if (!found) fprintf(stderr, "%s is not there\n", name), exit(1);
  return found;
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  int (*bcast)(void *, int64_t, MPI_Datatype, int, MPI_Comm) = wide("MPI_Bcast_c");
  int (*allreduce)(const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm) = wide("MPI_Allreduce_c");
  int (*allgatherv)(const void *, int64_t, MPI_Datatype, void *, const int64_t *, const int64_t *, MPI_Datatype, MPI_Comm) = wide("MPI_Allgatherv_c");
  int (*allgather)(const void *, int64_t, MPI_Datatype, void *, int64_t, MPI_Datatype, MPI_Comm) = wide("MPI_Allgather_c");
  /* Small ones, by the same names. */
  for (int again = 0; again < 6; again++) {
    int mine[2] = {rank, 7}, all[64], sum[2];
    int64_t counts[64], places[64];
    for (int r = 0; r < size; r++) counts[r] = 2, places[r] = 2 * (size - 1 - r);
    allgatherv(mine, 2, MPI_INT, all, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) EXPECT(all[places[r]] == r && all[places[r] + 1] == 7, "a small allgatherv");
    allreduce(mine, sum, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(sum[0] == size * (size - 1) / 2 && sum[1] == 7 * size, "a small allreduce");
    cases++;
  }
  int64_t n = ((int64_t)1 << 31) + 12345;
  unsigned char *data = malloc(n), *out = malloc(2 * n);
  for (int64_t i = 0; i < n; i += 4096) data[i] = (unsigned char)(i / 4096 + rank);
  data[n - 1] = (unsigned char)(rank + 1);
  bcast(data, n, MPI_BYTE, 1, MPI_COMM_WORLD);
  for (int64_t i = 0; i < n; i += 4096) EXPECT(data[i] == (unsigned char)(i / 4096 + 1), "bcast: byte %ld", (long)i);
  EXPECT(data[n - 1] == 2, "bcast: the last byte");
  cases++;
  for (int64_t i = 0; i < n; i += 4096) data[i] = (unsigned char)(1 << rank);
  data[n - 1] = (unsigned char)(16 << rank);
  allreduce(data, out, n, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
  for (int64_t i = 0; i < n; i += 4096) EXPECT(out[i] == 3, "allreduce: byte %ld is %d", (long)i, out[i]);
  EXPECT(out[n - 1] == 48, "allreduce: the last byte");
  cases++;
  for (int64_t i = 0; i < n; i += 4096) data[i] = (unsigned char)(i / 4096 * 3 + rank);
  allgather(data, n, MPI_BYTE, out, n, MPI_BYTE, MPI_COMM_WORLD);
  for (int r = 0; r < 2; r++)
    for (int64_t i = 0; i < n; i += 4096) EXPECT(out[r * n + i] == (unsigned char)(i / 4096 * 3 + r), "allgather: block %d, byte %ld", r, (long)i);
  cases++;
  /* An MPI that knows no such lists cannot do this by itself. */
  if (argc < 2) {
    int64_t counts[2] = {n, 5}, places[2] = {5, 0};
    allgatherv(data, counts[rank], MPI_BYTE, out, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    for (int64_t i = 0; i < n; i += 4096) EXPECT(out[5 + i] == (unsigned char)(i / 4096 * 3), "allgatherv: byte %ld", (long)i);
    EXPECT(out[0] == 1, "allgatherv: the second block");
    cases++;
  }
  return finish();
}
