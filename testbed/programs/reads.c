/* Ranks that read each other's buffers, until the kernel refuses. Every collective, short and long, in place, with types with
   gaps, with late ranks, and two persistent ones at a time; then the kernel refuses the reads of every second rank, and
   everything is repeated. Send buffers are overwritten as soon as a call returns, so a late read gives wrong values. Values
   are checked in every call. */
#define _GNU_SOURCE
#include "common.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 40000, HALF = 20000, SOME = 777, PATIENCE = 3000 };

static int64_t *in, *out;

static int64_t value(int of, int call, int i) { return of * 1000003L + call * 7919L + i; }

static int64_t sum(int call, int i) {
  int64_t all = 0;
  for (int r = 0; r < size; r++) all += value(r, call, i);
  return all;
}

/* The kernel refuses process_vm_readv from here on. */
static void refuse(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  int refused = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  EXPECT(!refused, "there is no filter for system calls");
}

static void late(int call) {
  if (call % 4 == 1 && rank == call / 4 % size) usleep(PATIENCE);
}

static void fill(int64_t *data, int count, int call) {
  for (int i = 0; i < count; i++) data[i] = value(rank, call, i);
}

/* What was sent is the user's again. */
static void spoil(int64_t *data, int count) { memset(data, 0xa5, count * sizeof *data); }

static void check(const char *what, int count, int call, int wrong) {
  EXPECT(!wrong, "%s %d of %d: %d wrong", what, call, count, wrong);
  cases++;
}

static void allreduce(int count, int call) {
  int in_place = call % 2, wrong = 0;
  int64_t *from = in_place ? out : in;
  fill(from, count, call);
  late(call);
  MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) wrong += out[i] != sum(call, i);
  spoil(in, count);
  spoil(out, count);
  check(in_place ? "allreduce in place" : "allreduce", count, call, wrong);
}

static void scatter(int count, int call) {
  int wrong = 0;
  fill(in, count * size, call);
  late(call);
  MPI_Reduce_scatter_block(in, out, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) wrong += out[i] != sum(call, rank * count + i);
  spoil(in, count * size);
  check("reduce_scatter_block", count, call, wrong);
}

static void gather(int count, int call) {
  int in_place = call % 2, wrong = 0;
  fill(in_place ? out + rank * count : in, count, call);
  late(call);
  MPI_Allgather(in_place ? MPI_IN_PLACE : in, count, MPI_INT64_T, out, count, MPI_INT64_T, MPI_COMM_WORLD);
  for (int r = 0; r < size; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != value(r, call, i);
  spoil(in, count);
  spoil(out, count * size);
  check(in_place ? "allgather in place" : "allgather", count, call, wrong);
}

/* Every second element of a longer buffer. */
static void gaps(int count, int call) {
  int wrong = 0;
  MPI_Datatype spread;
  MPI_Type_vector(count, 1, 2, MPI_INT64_T, &spread);
  MPI_Type_commit(&spread);
  for (int i = 0; i < count; i++) in[2 * i] = value(rank, call, i), in[2 * i + 1] = -7;
  late(call);
  MPI_Allgather(in, 1, spread, out, count, MPI_INT64_T, MPI_COMM_WORLD);
  for (int r = 0; r < size; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != value(r, call, i);
  spoil(in, 2 * count);
  MPI_Type_free(&spread);
  check("allgather of gaps", count, call, wrong);
}

static void exchange(int count, int call) {
  int wrong = 0;
  fill(in, count * size, call);
  late(call);
  MPI_Alltoall(in, count, MPI_INT64_T, out, count, MPI_INT64_T, MPI_COMM_WORLD);
  for (int r = 0; r < size; r++)
    for (int i = 0; i < count; i++) wrong += out[r * count + i] != value(r, call, rank * count + i);
  spoil(in, count * size);
  check("alltoall", count, call, wrong);
}

static void bcast(int count, int call) {
  int root = call % size, wrong = 0;
  if (rank == root) fill(out, count, call);
  late(call);
  MPI_Bcast(out, count, MPI_INT64_T, root, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) wrong += out[i] != value(root, call, i);
  spoil(out, count);
  check("bcast", count, call, wrong);
}

static void reduce(int count, int call) {
  int root = call % size, wrong = 0;
  fill(in, count, call);
  late(call);
  MPI_Reduce(in, out, count, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD);
  if (rank == root)
    for (int i = 0; i < count; i++) wrong += out[i] != sum(call, i);
  spoil(in, count);
  check("reduce", count, call, wrong);
}

/* Two under way, and a message that one rank waits for in between: it advances both meanwhile. */
static void persistent(int call, MPI_Request *requests) {
  int wrong = 0, done = 0;
  int64_t token = 0;
  fill(in, HALF + SOME, call);
  MPI_Status statuses[2];
  MPI_Startall(2, requests);
  late(call);
  if (rank == 0)
    for (int r = 1; r < size; r++) MPI_Recv(&token, 1, MPI_INT64_T, r, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  while (!done) MPI_Testall(2, requests, &done, statuses);
  if (rank) MPI_Send(&token, 1, MPI_INT64_T, 0, 3, MPI_COMM_WORLD);
  for (int i = 0; i < HALF + SOME; i++) wrong += out[i] != sum(call, i);
  spoil(in, HALF + SOME);
  check("two persistent allreduces", HALF, call, wrong);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int requests = argc < 2 || strcmp(argv[1], "no requests");
  in = malloc(2 * (size_t)MOST * size * sizeof *in);
  out = malloc(2 * (size_t)MOST * size * sizeof *out);
  const int counts[] = {0, 1, size - 1, SOME, HALF, MOST};
  MPI_Request started[2];
#if MPI_VERSION >= 4
  MPI_Datatype type = MPI_INT64_T;
  if (requests) MPI_Allreduce_init(in, out, HALF, type, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &started[0]);
  if (requests)
    MPI_Allreduce_init(in + HALF, out + HALF, SOME, type, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &started[1]);
#else
  requests = 0;
#endif
  for (int turn = 0, call = 0; turn < 2; turn++) {
    for (int repeat = 0; repeat < 3; repeat++) {
      for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++, call++) {
        allreduce(counts[c], call);
        scatter(counts[c], call);
        gather(counts[c], call);
        gaps(counts[c], call);
        exchange(counts[c], call);
        bcast(counts[c], call);
        reduce(counts[c], call);
        if (requests) persistent(call, started);
      }
    }
    if (turn == 0 && rank % 2 == 1) refuse();
  }
  for (int i = 0; requests && i < 2; i++) MPI_Request_free(&started[i]);
  long all = total();
  MPI_Finalize();
  return all != 0;
}
