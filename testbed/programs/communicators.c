/* Many communicators: ALIVE at once, all handled by the library; then MADE that are created, used and freed without growth of memory. With `native`, the same for the MPI alone.

   usage: communicators ALIVE MADE [native], the last to see what the MPI alone does */
#include "check.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

static int native;

static void use(MPI_Comm comm, int expect_served) {
  int64_t in = rank + 1, out = -1;
  if (native) {
    PMPI_Allreduce(&in, &out, 1, MPI_INT64_T, MPI_SUM, comm);
    return;
  }
  MUST(bruckner_allreduce(&in, &out, 1, MPI_INT64_T, MPI_SUM, comm));
  EXPECT(out == (int64_t)size * (size + 1) / 2, "a wrong sum: %ld", (long)out);
  cases++;
  if (!expect_served) return;
  char served[100];
  MUST(bruckner_algorithm(comm, "allreduce", served, sizeof served));
  EXPECT(strcmp(served, "native") != 0 && served[0], "not served: `%s`", served);
}

static long resident(void) {
  long pages = 0, unused;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &unused, &pages) != 2) return -1;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static int count(const char *directory, const char *prefix) {
  int n = 0;
  DIR *d = opendir(directory);
  for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
  if (d) closedir(d);
  return n;
}

int main(int argc, char **argv) {
  /* A huge page would look like a leak. */
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  begin(&argc, &argv);
  int alive = atoi(argv[1]), made = atoi(argv[2]);
  native = argc > 3;
  MPI_Comm *all = malloc(alive * sizeof(MPI_Comm));
  for (int i = 0; i < alive; i++) {
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &all[i]);
    use(all[i], 1);
  }
  for (int i = 0; i < alive; i++) use(all[i], 0);
  for (int i = 0; i < alive; i++) MPI_Comm_free(&all[i]);
  free(all);
  /* What is there half way must be all that is there at the end: a leak of ten bytes a communicator would show. */
  long memory = 0;
  int files = 0, maps = 0;
  for (int i = 0; i < made; i++) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
    use(comm, i % 1000 == 0);
    MPI_Comm_free(&comm);
    if (i == made / 2) memory = resident(), files = count("/proc/self/fd", ""), maps = count("/proc/self/map_files", "");
  }
  if (made > 0) {
    long grown = resident() - memory;
    int more_files = count("/proc/self/fd", "") - files, more_maps = count("/proc/self/map_files", "") - maps;
    EXPECT(grown < 512, "memory has grown by %ld KiB", grown);
    EXPECT(more_files == 0 && more_maps <= 4, "%d more files, %d more mappings", more_files, more_maps);
    EXPECT(count("/dev/shm", "bruckner-") == 0, "something is in /dev/shm");
    if (rank == 0) fprintf(stderr, "%d made and freed: %ld KiB more, %d files, %d mappings\n", made, grown, more_files, more_maps);
  }
  return finish();
}
