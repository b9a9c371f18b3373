/* Rank 1 cannot attach the shared memory of the node, and then cannot allocate the memory of a plan; all ranks must react alike. Run
   with BRUCKNER=off, so that MPI_Init prepares nothing. */
#define _GNU_SOURCE
#include "check.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

static long kilobytes(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld", &pages) != 1) abort();
  fclose(file);
  return pages * 4;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  unsetenv("BRUCKNER");
  /* A /dev/shm of its own: what the others make there cannot be attached. */
  if (rank == 1 && (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) || mount("tmpfs", "/dev/shm", "tmpfs", 0, 0)))
    perror("a namespace"), MPI_Abort(MPI_COMM_WORLD, 2);
  MUST(bruckner_init());
  int64_t mine = rank + 1, sum = 0;
  for (int i = 0; i < 10; i++) {
    MUST(bruckner_allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    EXPECT(sum == size * (size + 1) / 2, "without shared memory the sum is %ld", (long)sum);
    cases++;
  }
  /* A plan of 32 MiB of temporary memory, which rank 1 cannot have. */
  int n = 4 << 20;
  double *in = calloc(n, 8), *out = calloc(n, 8);
  struct rlimit before, less;
  getrlimit(RLIMIT_AS, &before);
  less = before, less.rlim_cur = (kilobytes() + 8192) * 1024;
  if (rank == 1) setrlimit(RLIMIT_AS, &less);
  bruckner_plan *plan = 0;
  int code = bruckner_allreduce_init(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, "recursive-doubling", &plan);
  if (rank == 1) setrlimit(RLIMIT_AS, &before);
  EXPECT(code == 4 && !plan, "a plan was made though a rank lacks memory: %d, %s", code, bruckner_last_error());
  cases++;
  /* With memory it can be made. */
  MUST(bruckner_allreduce_init(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, "recursive-doubling", &plan));
  MUST(bruckner_run(plan));
  MUST(bruckner_free(&plan));
  cases++;
  free(in), free(out);
  return finish();
}
