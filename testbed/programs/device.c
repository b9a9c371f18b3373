/* One rank loads a GPU runtime after the first calls. From then on its buffers may be in device memory, which only the MPI may
   access. The program puts them into protected memory and checks from the stack who accesses it first. FAKE_RUNTIME names the
   library that is loaded as the runtime. */
#include "plain.h"
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>

enum { BYTES = 1 << 20 };
static char *device;
static volatile int touched_by_library, touched;

static void on_touch(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  char *at = info->si_addr;
  if (at < device || at >= device + BYTES) _exit(66);
  void *frames[64];
  int n = backtrace(frames, 64);
  Dl_info about;
  for (int i = 1; i < n; i++) {
    if (!dladdr(frames[i], &about) || strstr(about.dli_fname, "/libc.so") || strstr(about.dli_fname, "device")) continue;
    touched_by_library += strstr(about.dli_fname, "bruckner") != 0;
    break;
  }
  touched++;
  mprotect(device, BYTES, PROT_READ | PROT_WRITE);
}

/* A buffer of the program's: what is in it is put there before nobody may touch it. */
static long *in, *out;
static void open_memory(void) { mprotect(device, BYTES, PROT_READ | PROT_WRITE); }
static void close_memory(int is_device) {
  if (is_device) mprotect(device, BYTES, PROT_NONE);
}

static void calls(int n, int is_device) {
  long sum = size * (size - 1) / 2;
  for (int which = 0; which < 5; which++) {
    open_memory();
    for (int i = 0; i < n * size; i++) in[i] = rank + i, out[i] = -1;
    close_memory(is_device);
    int counts[64], at[64];
    for (int i = 0; i < size; i++) counts[i] = n, at[i] = n * i;
    switch (which) {
    case 0: MPI_Allreduce(in, out, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); break;
    case 1: MPI_Allgather(in, n, MPI_LONG, out, n, MPI_LONG, MPI_COMM_WORLD); break;
    case 2: MPI_Alltoallv(in, counts, at, MPI_LONG, out, counts, at, MPI_LONG, MPI_COMM_WORLD); break;
    case 3: MPI_Bcast(rank ? out : in, n, MPI_LONG, 0, MPI_COMM_WORLD); break;
    default: MPI_Reduce_scatter_block(in, out, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    open_memory();
    long last = which == 0   ? sum + (long)size * (n - 1)
                : which == 1 ? rank * 0 + (n - 1)
                : which == 2 ? 0 + n * rank + n - 1
                : which == 3 ? n - 1
                             : sum + (long)size * (n * rank + n - 1);
    long got = which == 3 && !rank ? in[n - 1] : out[n - 1];
    EXPECT(got == last, "collective %d of %d elements gave %ld instead of %ld", which, n, got, last);
    cases++;
  }
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  device = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  in = (long *)device, out = (long *)(device + BYTES / 2);
  void *warm[4];
  backtrace(warm, 4);
  struct sigaction action = {.sa_sigaction = on_touch, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, 0);
  for (int i = 0; i < 6; i++) calls(3, 0);
  if (rank == 1) EXPECT(dlopen(getenv("FAKE_RUNTIME"), RTLD_NOW), "the runtime cannot be loaded");
  /* Calls that came before, if with other sizes; then one for which ranks must agree; then all of them again. */
  for (int i = 0; i < 4; i++) calls(3, rank == 1);
  for (int i = 0; i < 4; i++) calls(50, rank == 1);
  /* Of a kind that never came before. */
  double one = 1, all = 0;
  MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(all == size, "a sum of another kind gave %g", all);
  for (int i = 0; i < 4; i++) calls(3, rank == 1);
  EXPECT(touched_by_library == 0, "the library touched device memory %d times", touched_by_library);
  EXPECT(rank != 1 || touched > 0, "nobody touched device memory: this tests nothing");
  return finish();
}
