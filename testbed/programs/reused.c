/* reused ROUNDS: makes, starts and frees persistent operations at random. Kinds, sizes and roots come from a generator that all ranks seed
   alike; which operations a rank frees, in which order and when, comes from one of its own. Every result is checked. */
#include "plain.h"
#ifdef OPEN_MPI
#if OMPI_MAJOR_VERSION < 5
#include "extensions.h"
#endif
#endif

static uint64_t next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

enum { SUM, FLOATS, GATHER, EXCHANGE, BCAST, REDUCE, BARRIER, KINDS };
enum { HELD = 200, MOST = 400, COMMS = 3 };
typedef struct {
  MPI_Request request;
  MPI_Comm comm;
  int kind, count, root;
  int64_t *in, *out;
} operation;
static operation held[HELD];
static int number;
static MPI_Comm comms[COMMS];

static void make(operation *o, MPI_Comm comm, int kind, int count, int root) {
  *o = (operation){.comm = comm, .kind = kind, .count = count, .root = root};
  o->in = calloc((size_t)count * size + 1, 8), o->out = calloc((size_t)count * size + 1, 8);
  switch (kind) {
  case SUM: MPI_Allreduce_init(o->in, o->out, count, MPI_INT64_T, MPI_SUM, comm, MPI_INFO_NULL, &o->request); break;
  case FLOATS: MPI_Allreduce_init(o->in, o->out, count, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &o->request); break;
  case GATHER: MPI_Allgather_init(o->in, count, MPI_INT64_T, o->out, count, MPI_INT64_T, comm, MPI_INFO_NULL, &o->request); break;
  case EXCHANGE: MPI_Alltoall_init(o->in, count, MPI_INT64_T, o->out, count, MPI_INT64_T, comm, MPI_INFO_NULL, &o->request); break;
  case BCAST: MPI_Bcast_init(o->out, count, MPI_INT64_T, root, comm, MPI_INFO_NULL, &o->request); break;
  case REDUCE: MPI_Reduce_init(o->in, o->out, count, MPI_INT64_T, MPI_SUM, root, comm, MPI_INFO_NULL, &o->request); break;
  default: MPI_Barrier_init(comm, MPI_INFO_NULL, &o->request);
  }
}

static int64_t given(int of, int i, int round) { return 1000 * of + i % 97 + round % 89; }

static void fill(operation *o, int round) {
  int blocks = o->kind == EXCHANGE ? size : 1;
  for (int i = 0; i < blocks * o->count; i++) {
    o->in[i] = given(rank, i, round);
    if (o->kind == FLOATS) ((double *)o->in)[i] = given(rank, i, round);
  }
  for (int i = 0; i < size * o->count; i++) o->out[i] = o->kind == BCAST && rank == o->root ? given(rank, i, round) : -1;
}

static void check(operation *o, int round) {
  cases++;
  int64_t all = (int64_t)size * (size - 1) / 2 * 1000;
  int blocks = o->kind == GATHER || o->kind == EXCHANGE ? size : 1;
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < o->count; i++) {
      int64_t got = o->out[b * o->count + i], sum = all + size * given(0, i, round), must = 0;
      switch (o->kind) {
      case FLOATS: got = ((double *)o->out)[i]; /* fall through */
      case SUM: must = sum; break;
      case REDUCE: must = rank == o->root ? sum : -1; break;
      case GATHER: must = given(b, i, round); break;
      case EXCHANGE: must = given(b, rank * o->count + i, round); break;
      case BCAST: must = given(o->root, i, round); break;
      default: must = got;
      }
      EXPECT(got == must, "round %d, kind %d, %d elements: element %d of block %d is %ld, not %ld", round, o->kind, o->count, i, b,
             (long)got, (long)must);
      if (got != must) return;
    }
}

static void let_go(int which) {
  MPI_Request_free(&held[which].request);
  free(held[which].in), free(held[which].out);
  held[which] = held[--number];
}

/* Inside MPI_Finalize the world is still there. */
static int last(MPI_Comm self, int key, void *value, void *extra) {
  for (int round = 0; round < 3; round++) {
    make(&held[0], MPI_COMM_WORLD, SUM, 7, 0);
    fill(&held[0], round);
    MPI_Start(&held[0].request);
    MPI_Wait(&held[0].request, MPI_STATUS_IGNORE);
    check(&held[0], round);
    number = 1;
    let_go(0);
  }
  if (failures) MPI_Abort(MPI_COMM_WORLD, 1);
  return MPI_SUCCESS;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int rounds = argc > 1 ? atoi(argv[1]) : 500;
  uint64_t shared = 17, own = 5 + rank;
  for (int i = 0; i < 5; i++) MPI_Barrier(MPI_COMM_WORLD);
  comms[0] = MPI_COMM_WORLD;
  for (int i = 1; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (int round = 0; round < rounds && !failures; round++) {
    /* One to three operations, made and started in the same order on all ranks, as MPI asks, then awaited together. */
    int more = 1 + next(&shared) % 3;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    if (number + more > HELD) while (number > HELD / 2) let_go(next(&own) % number);
    for (int k = 0; k < more; k++) {
      static const int counts[] = {1, 1, 2, 7, 40, MOST};
      int kind = next(&shared) % KINDS, count = kind == BARRIER ? 0 : counts[next(&shared) % 6], comm = next(&shared) % COMMS;
      make(&held[number + k], comms[comm], kind, count, next(&shared) % size);
    }
    for (int times = 1 + next(&shared) % 2; times > 0; times--) {
      for (int k = 0; k < more; k++) {
        fill(&held[number + k], round);
        requests[k] = held[number + k].request;
        MPI_Start(&requests[k]);
      }
      if (next(&shared) % 4 == 0) {
        int64_t mine = rank, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, comms[next(&shared) % COMMS]);
        EXPECT(sum == (int64_t)size * (size - 1) / 2, "round %d: a sum between is %ld", round, (long)sum);
      }
      MPI_Waitall(more, requests, statuses);
      for (int k = 0; k < more; k++) check(&held[number + k], round);
    }
    number += more;
    /* Each rank decides for itself which operations it frees, and when: some ranks free so few that many are alive. */
    int habit = (rank + round / 100) % 3;
    while (number > 0 && (habit == 0 || next(&own) % (habit == 1 ? 3 : 40))) let_go(habit ? (int)(next(&own) % number) : 0);
    if (round % 200 == 199)
      for (int i = 1; i < COMMS; i++) {
        /* A communicator is freed after the operations on it. */
        for (int k = number - 1; k >= 0; k--)
          if (held[k].comm == comms[i]) let_go(k);
        MPI_Comm_free(&comms[i]);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
      }
  }
  while (number) let_go(0);
  for (int i = 1; i < COMMS; i++) MPI_Comm_free(&comms[i]);
  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  return finish();
}
