/* Compares every algorithm of every collective with PMPI_*, with canaries around every buffer.

   usage: collectives FILE, whose lines are
     TOPOLOGY|COLLECTIVE|ALGORITHM|CONSISTENT
   For each: counts 0, 1, 7, 1000 and ragged; blocking, in place, and as a plan that is started twice. Integer results
   must be identical; if the line says that the algorithm is consistent, floating-point results must have the same bits on all
   ranks. */
#include "check.h"

static const int COUNTS[] = {0, 1, 7, 1000, -1};
enum { KINDS = 5 };

static MPI_Comm comm;
static char topology[200], collective[40], algorithm[200];
static int consistent;

/* The block of a rank for a kind of counts. */
static int block(int kind, int r) { return COUNTS[kind] >= 0 ? COUNTS[kind] : (r * 5 + 3) % 7 * 3; }

static int before(int kind, int r) {
  int sum = 0;
  for (int i = 0; i < r; i++) sum += block(kind, i);
  return sum;
}

static int64_t value(int r, int i, int round) { return (int64_t)(r + 1) * 1000003 + (int64_t)i * 7919 + round; }

static int pair(int kind, int from, int to) {
  return COUNTS[kind] >= 0 ? COUNTS[kind] : (from * 3 + to * 5) % 11;
}

/* One call of a collective on int64 or double: by PMPI, by the library, or as a plan of the library's. */
enum how { REFERENCE, BLOCKING, PLAN };

struct task {
  int kind, in_place, is_double, root;
  char *in, *out;
  size_t in_bytes, out_bytes;
  int counts[64], displs[64], send_counts[64], send_displs[64];
  bruckner_plan *plan;
};

static int is(const char *name) { return strcmp(collective, name) == 0; }

/* Sizes of the buffers, and the counts. */
static void shape(struct task *t) {
  int k = t->kind, own = block(k, rank), all = before(k, size);
  int in = own, out = all;
  for (int r = 0; r < size; r++) t->counts[r] = block(k, r), t->displs[r] = before(k, r);
  if (is("allreduce") || is("reduce") || is("bcast")) in = out = block(k, 0);
  if (is("barrier")) in = out = 0;
  if (is("reduce_scatter")) in = all, out = t->in_place ? all : own;
  if (is("alltoall")) {
    in = out = 0;
    for (int r = 0; r < size; r++) {
      t->send_counts[r] = pair(k, rank, r), t->counts[r] = pair(k, r, rank);
      /* Gaps of two between blocks, where sizes differ. */
      int gap = COUNTS[k] >= 0 ? 0 : 2;
      t->send_displs[r] = in, t->displs[r] = out;
      in += t->send_counts[r] + gap, out += t->counts[r] + gap;
    }
    if (t->in_place && COUNTS[k] < 0) {
      /* In place, what is sent to a rank is as long as what comes from it. */
      out = 0;
      for (int r = 0; r < size; r++) {
        t->counts[r] = (pair(k, r, rank) + pair(k, rank, r)) % 9, t->displs[r] = out;
        out += t->counts[r] + 2;
      }
    }
  }
  t->in_bytes = 8 * (size_t)in, t->out_bytes = 8 * (size_t)out;
}

static void fill(struct task *t, int round) {
  size_t n = t->in_bytes / 8, m = t->out_bytes / 8;
  for (size_t i = 0; i < n; i++)
    if (t->is_double) ((double *)t->in)[i] = 1.0 / (1 + value(rank, i, round) % 10007);
    else ((int64_t *)t->in)[i] = value(rank, i, round);
  memset(t->out, 0x33, t->out_bytes);
  if (!t->in_place) return;
  /* The output begins as the collective wants its input. */
  size_t offset = is("allgather") ? before(t->kind, rank) : 0;
  size_t count = is("alltoall") ? m : n < m ? n : m;
  for (size_t i = 0; i < count; i++)
    if (t->is_double) ((double *)t->out)[offset + i] = 1.0 / (1 + value(rank, i, round) % 10007);
    else ((int64_t *)t->out)[offset + i] = value(rank, i, round);
}

static void run(struct task *t, enum how how) {
  MPI_Datatype type = t->is_double ? MPI_DOUBLE : MPI_INT64_T;
  int k = t->kind, ragged = COUNTS[k] < 0, n = block(k, 0), own = block(k, rank);
  void *in = t->in_place ? MPI_IN_PLACE : t->in, *out = t->out;
  const char *a = "";
#define DO(name, ...)                                                                                       \
  do {                                                                                                      \
    if (how == REFERENCE) PMPI_##name(__VA_ARGS__, comm);                                                   \
    else if (how == BLOCKING) MUST(LOWER_##name(__VA_ARGS__, comm));                                        \
    else MUST(INIT_##name(__VA_ARGS__, comm, a, &t->plan));                                                 \
  } while (0)
#define LOWER_Allgather bruckner_allgather
#define INIT_Allgather bruckner_allgather_init
#define LOWER_Allgatherv bruckner_allgatherv
#define INIT_Allgatherv bruckner_allgatherv_init
#define LOWER_Allreduce bruckner_allreduce
#define INIT_Allreduce bruckner_allreduce_init
#define LOWER_Reduce_scatter bruckner_reduce_scatter
#define INIT_Reduce_scatter bruckner_reduce_scatter_init
#define LOWER_Reduce_scatter_block bruckner_reduce_scatter_block
#define INIT_Reduce_scatter_block bruckner_reduce_scatter_block_init
#define LOWER_Alltoall bruckner_alltoall
#define INIT_Alltoall bruckner_alltoall_init
#define LOWER_Alltoallv bruckner_alltoallv
#define INIT_Alltoallv bruckner_alltoallv_init
#define LOWER_Bcast bruckner_bcast
#define INIT_Bcast bruckner_bcast_init
#define LOWER_Reduce bruckner_reduce
#define INIT_Reduce bruckner_reduce_init
  if (is("allgather")) {
    if (ragged) DO(Allgatherv, in, own, type, out, t->counts, t->displs, type);
    else DO(Allgather, in, n, type, out, n, type);
  } else if (is("allreduce")) {
    DO(Allreduce, in, out, n, type, MPI_SUM);
  } else if (is("reduce_scatter")) {
    if (ragged) DO(Reduce_scatter, in, out, t->counts, type, MPI_SUM);
    else DO(Reduce_scatter_block, in, out, n, type, MPI_SUM);
  } else if (is("alltoall")) {
    if (ragged) DO(Alltoallv, in, t->send_counts, t->send_displs, type, out, t->counts, t->displs, type);
    else DO(Alltoall, in, n, type, out, n, type);
  } else if (is("bcast")) {
    if (how != PLAN && rank == t->root) memcpy(out, t->in, t->in_bytes);
    DO(Bcast, out, n, type, t->root);
  } else if (is("reduce")) {
    DO(Reduce, t->in_place && rank != t->root ? t->out : in, out, n, type, MPI_SUM, t->root);
  } else {
    if (how == REFERENCE) PMPI_Barrier(comm);
    else if (how == BLOCKING) MUST(bruckner_barrier(comm));
    else MUST(bruckner_barrier_init(comm, a, &t->plan));
  }
}

/* How many bytes of the output are defined afterwards, and where the others are left as they were. */
static int same(const struct task *t, const char *want) {
  if (is("reduce") && rank != t->root) return 1;
  size_t bytes = t->out_bytes;
  if (is("reduce_scatter")) bytes = 8 * (size_t)block(t->kind, rank);
  return memcmp(t->out, want, bytes) == 0;
}

/* Whether rank 0's floating-point result has the same bits here. */
static void agree(const struct task *t) {
  if (!is("allreduce") || !consistent) return;
  char *zero = malloc(t->out_bytes + 1);
  memcpy(zero, t->out, t->out_bytes);
  PMPI_Bcast(zero, t->out_bytes, MPI_BYTE, 0, comm);
  EXPECT(memcmp(zero, t->out, t->out_bytes) == 0, "%s by %s on %s: other bits on another rank", collective,
         algorithm, topology);
  free(zero);
}

/* References do not depend on the algorithm: they are made once for each collective and kind. */
struct reference {
  char key[80], *want;
  size_t bytes;
};
static struct reference references[2000];
static int made;

static const char *reference(struct task *t, int round) {
  char key[80];
  snprintf(key, sizeof key, "%s %d %d %d %d", collective, t->kind, t->in_place, round, t->root);
  for (int i = 0; i < made; i++)
    if (strcmp(references[i].key, key) == 0) return references[i].want;
  struct reference *r = &references[made++];
  strcpy(r->key, key);
  char *out = t->out;
  int in_place = t->in_place;
  r->want = t->out = malloc(t->out_bytes + 1);
  /* MPICH 4.0.2 crashes in some reductions in place to a root that is not rank 0. */
  if (is("reduce")) t->in_place = 0;
  fill(t, round);
  run(t, REFERENCE);
  t->out = out, t->in_place = in_place;
  return r->want;
}

static void check(struct task *t, int round, const char *what) {
  cases++;
  if (!t->is_double)
    EXPECT(same(t, reference(t, round)), "%s by %s on %s, kind %d, in place %d, %s, round %d: wrong result", collective,
           algorithm, topology, t->kind, t->in_place, what, round);
  else agree(t);
  EXPECT(is_intact(t->out, t->out_bytes) && is_intact(t->in, t->in_bytes),
         "%s by %s on %s, kind %d, in place %d, %s: a canary is dead", collective, algorithm, topology, t->kind,
         t->in_place, what);
}

static void one(int kind, int in_place, int is_double, int with_plan) {
  struct task t = {.kind = kind, .in_place = in_place, .is_double = is_double, .root = size / 2};
  shape(&t);
  t.in = guarded(t.in_bytes), t.out = guarded(t.out_bytes);
  for (int round = 0; round < 2; round++) {
    fill(&t, round);
    run(&t, BLOCKING);
    check(&t, round, "blocking");
  }
  char served[300];
  MUST(bruckner_algorithm(comm, collective, served, sizeof served));
  /* Nothing is to be done where all counts are zero, or alone; everything else must have been served as asked. */
  EXPECT(strcmp(served, "native") != 0, "%s by %s on %s, kind %d: went to native", collective, algorithm, topology, kind);
  if (with_plan) {
    run(&t, PLAN);
    for (int round = 2; round < 4; round++) {
      fill(&t, round);
      if (is("bcast") && rank == t.root) memcpy(t.out, t.in, t.in_bytes);
      MUST(bruckner_start(t.plan));
      if (round == 2) {
        int done = 0;
        MUST(bruckner_test(t.plan, &done));
      }
      MUST(bruckner_wait(t.plan));
      check(&t, round, "plan");
    }
    MUST(bruckner_free(&t.plan));
  }
  unguard(t.in), unguard(t.out);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  FILE *file = fopen(argv[1], "r");
  if (!file) MPI_Abort(MPI_COMM_WORLD, 2);
  char line[500], last[200] = "";
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int number = 0; fgets(line, sizeof line, file); number++) {
    if (sscanf(line, "%199[^|]|%39[^|]|%199[^|]|%d", topology, collective, algorithm, &consistent) != 4)
      MPI_Abort(MPI_COMM_WORLD, 2);
    if (strcmp(last, topology) != 0) MUST(bruckner_set_topology(comm, topology));
    strcpy(last, topology);
    char rule[300];
    snprintf(rule, sizeof rule, "%s=%s", collective, algorithm);
    MUST(bruckner_set_algorithms(comm, rule));
    for (int kind = 0; kind < KINDS; kind++) {
      int ragged = COUNTS[kind] < 0;
      if (ragged && (is("bcast") || is("reduce") || is("allreduce"))) continue;
      if (kind > 0 && is("barrier")) continue;
      /* Sizes known only locally are neither cut nor exchanged in place. */
      int equal = strstr(algorithm, "modified") || strstr(algorithm, "pipeline") || !strcmp(algorithm, "direct");
      if (ragged && is("alltoall") && equal) continue;
      one(kind, 0, 0, (number + kind) % 3 == 0);
      if ((number + kind) % 4 == 0 && !is("bcast") && !is("barrier")) one(kind, 1, 0, kind == 2);
      if (is("allreduce") && kind == 3) one(kind, 0, 1, 0);
    }
  }
  fclose(file);
  MPI_Comm_free(&comm);
  return finish();
}
