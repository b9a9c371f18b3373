/* stress CALLS SEED: random collectives on random communicators, with random types, operations, sizes and roots, in place
   and not, while messages, nonblocking collectives, duplicates and one-sided accesses are in flight, and in callbacks on communicators
   that are being freed. Each result is compared with that of the MPI's own
   function on the same input, bytes between the elements included.

   Decisions that all ranks must share come from a generator with a common seed; buffer layouts differ between ranks.
   The reference is on plain integers, packed: Intel MPI's own allgather is wrong where ranks name one signature by
   different types, and its reductions where a type's lower bound is negative; MPICH's reduce_scatter_block writes behind
   its temporary memory where a type has gaps. */
#include "plain.h"
#include <math.h>

typedef struct {
  uint64_t state;
} generator;

static uint32_t next(generator *g) {
  g->state = g->state * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = g->state ^ (g->state >> 33);
  return (uint32_t)((x * 0xff51afd7ed558ccdu) >> 32);
}

static int below(generator *g, int n) { return n <= 0 ? 0 : (int)(next(g) % (uint32_t)n); }

static generator shared, own;

/* Types. A unit is two integers; all of these hold one or, for the plain one, half of one. */
enum { PLAIN, PAIR, GAPS, NEGATIVE, TYPES };
static MPI_Datatype types[TYPES];
static const int EXTENT[TYPES] = {4, 8, 16, 24};

static void make_types(void) {
  types[PLAIN] = MPI_INT;
  MPI_Type_contiguous(2, MPI_INT, &types[PAIR]);
  int lengths[2] = {1, 1};
  MPI_Aint gaps[2] = {0, 8}, negative[2] = {8, -8};
  MPI_Datatype made;
  MPI_Type_create_hindexed(2, lengths, gaps, MPI_INT, &made);
  MPI_Type_create_resized(made, 0, 16, &types[GAPS]);
  MPI_Type_free(&made);
  MPI_Type_create_hindexed(2, lengths, negative, MPI_INT, &made);
  MPI_Type_create_resized(made, -8, 24, &types[NEGATIVE]);
  MPI_Type_free(&made);
  for (int t = PAIR; t < TYPES; t++) MPI_Type_commit(&types[t]);
}

/* A buffer of so many units in some type, and its twin for the native function. */
enum { MARGIN = 64 };
typedef struct {
  char *memory, *twin;
  size_t bytes;
  int type;
} buffer;

static int count_of(const buffer *b, int units) { return b->type == PLAIN ? 2 * units : units; }
static char *at(char *memory, const buffer *b, int units) {
  return memory + MARGIN + (size_t)units * (b->type == PLAIN ? 8 : EXTENT[b->type]);
}

static buffer make(int units, int type) {
  buffer b = {0};
  b.type = type;
  b.bytes = 2 * MARGIN + (size_t)units * 24;
  b.memory = malloc(b.bytes);
  b.twin = malloc(b.bytes);
  memset(b.memory, 0x5a, b.bytes);
  int *values = malloc(units * 8 + 8), position = 0;
  for (int i = 0; i < 2 * units; i++) values[i] = below(&own, 7) + 1;
  if (units > 0)
    MPI_Unpack(values, units * 8, &position, at(b.memory, &b, 0), count_of(&b, units), types[type], MPI_COMM_SELF);
  free(values);
  memcpy(b.twin, b.memory, b.bytes);
  return b;
}

static void drop(buffer *b) { free(b->memory), free(b->twin); }

/* Units as plain integers, from some unit of a buffer on. */
static int *packed(char *memory, const buffer *b, int first, int units) {
  int *values = malloc(8 * (size_t)units + 8), position = 0;
  if (units > 0)
    MPI_Pack(at(memory, b, first), count_of(b, units), types[b->type], values, 8 * units, &position, MPI_COMM_SELF);
  return values;
}

static void unpacked(const int *values, char *memory, const buffer *b, int first, int units) {
  int position = 0;
  if (units > 0)
    MPI_Unpack(values, 8 * units, &position, at(memory, b, first), count_of(b, units), types[b->type], MPI_COMM_SELF);
}

static int step;
static void same(const buffer *b, const char *what, int p, int units) {
  cases++;
  if (memcmp(b->memory, b->twin, b->bytes) != 0) {
    size_t i = 0;
    while (b->memory[i] == b->twin[i]) i++;
    EXPECT(0, "call %d: %s on %d ranks, %d units, type %d: byte %ld of %ld differs", step, what, p, units, b->type,
           (long)i - MARGIN, (long)b->bytes - 2 * MARGIN);
  }
}

/* Where the elements of a type lie, and in each the two integers of a unit, in the order of the type. */
typedef struct {
  MPI_Aint extent;
  int first, second;
} layout;

static layout layout_of(MPI_Datatype type) {
  MPI_Aint lower, extent, true_lower, true_extent;
  PMPI_Type_get_extent(type, &lower, &extent);
  PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
  return (layout){extent, true_lower < 0 ? 8 : 0, true_lower < 0 ? -8 : true_extent > 8 ? 8 : 4};
}

/* x -> a x + b modulo a prime: composing such maps is associative and not commutative. Elements are units of any type. */
static void compose(void *in, void *inout, int *len, MPI_Datatype *type) {
  layout at = layout_of(*type);
  for (int i = 0; i < *len; i++) {
    char *l = (char *)in + i * at.extent, *r = (char *)inout + i * at.extent;
    int64_t a = *(int *)(l + at.first), b = *(int *)(l + at.second), c = *(int *)(r + at.first), d = *(int *)(r + at.second);
    *(int *)(r + at.first) = (int)(a * c % 9973);
    *(int *)(r + at.second) = (int)((c * b + d) % 9973);
  }
}

static void add(void *in, void *inout, int *len, MPI_Datatype *type) {
  layout at = layout_of(*type);
  for (int i = 0; i < *len; i++) {
    char *l = (char *)in + i * at.extent, *r = (char *)inout + i * at.extent;
    *(int *)(r + at.first) += *(int *)(l + at.first);
    *(int *)(r + at.second) += *(int *)(l + at.second);
  }
}

static MPI_Op composed, added;

/* Communicators, made and freed as time goes by. */
enum { COMMS = 8 };
static MPI_Comm comms[COMMS];

static MPI_Comm another(void) {
  MPI_Comm made;
  switch (below(&shared, 4)) {
  case 0: MPI_Comm_dup(MPI_COMM_WORLD, &made); break;
  case 1: MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &made); break;
  case 2: MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made); break;
  default: {
    int first = below(&shared, size);
    MPI_Comm_split(MPI_COMM_WORLD, rank < first, rank * 7 % size, &made);
  }
  }
  return made;
}

static int sizes(void) {
  int kind = below(&shared, 100);
  return kind < 10 ? 0 : kind < 60 ? 1 + below(&shared, 4) : kind < 95 ? below(&shared, 200) : below(&shared, 6000);
}

/* Built-in reductions: a type and an operation, values such that any order gives the same bits. */
typedef struct {
  MPI_Datatype type;
  MPI_Op op;
  int bytes;
} reduction;

static reduction built_in(int which) {
  reduction all[] = {
      {MPI_INT, MPI_SUM, 4},          {MPI_INT, MPI_MAX, 4},    {MPI_DOUBLE, MPI_SUM, 8},      {MPI_FLOAT, MPI_MIN, 4},
      {MPI_LONG, MPI_BXOR, 8},        {MPI_UNSIGNED_CHAR, MPI_BAND, 1}, {MPI_DOUBLE_INT, MPI_MAXLOC, 16},
      {MPI_2INT, MPI_MINLOC, 8},      {MPI_SHORT, MPI_LAND, 2},
  };
  return all[which % (int)(sizeof all / sizeof *all)];
}

static void fill(char *data, int elements, reduction r) {
  memset(data, 0, (size_t)elements * r.bytes);
  for (int i = 0; i < elements; i++) {
    int value = below(&own, 50);
    if (r.type == MPI_DOUBLE) ((double *)data)[i] = value;
    else if (r.type == MPI_FLOAT) ((float *)data)[i] = value;
    else if (r.type == MPI_LONG) ((long *)data)[i] = value;
    else if (r.type == MPI_INT) ((int *)data)[i] = value;
    else if (r.type == MPI_SHORT) ((short *)data)[i] = value % 2;
    else if (r.type == MPI_2INT) ((int *)data)[2 * i] = value, ((int *)data)[2 * i + 1] = below(&own, 9);
    else if (r.type == MPI_DOUBLE_INT) ((double *)data)[2 * i] = value, ((int *)data)[4 * i + 2] = below(&own, 9);
    else data[i] = (char)value;
  }
}

/* One reduction of a built-in pair: which is 0 allreduce, 1 reduce, 2 reduce_scatter_block, 3 reduce_scatter. */
static void reduce_built_in(int which, MPI_Comm comm, int me, int p) {
  reduction r = built_in(below(&shared, 100));
  int n = sizes(), root = below(&shared, p), in_place = below(&shared, 3) == 0, counts[64], all = 0;
  for (int i = 0; i < p; i++) counts[i] = which == 3 ? below(&shared, 5) * (n / 4 + 1) : n, all += counts[i];
  int given = which < 2 ? n : all, got = which < 2 ? n : counts[me];
  int most = given > got ? given : got;
  char *in = guarded((size_t)given * r.bytes), *out = guarded((size_t)most * r.bytes), *twin = guarded((size_t)most * r.bytes);
  fill(in, given, r);
  if (in_place) memcpy(out, in, (size_t)given * r.bytes), memcpy(twin, in, (size_t)given * r.bytes);
  const void *send = in_place ? MPI_IN_PLACE : in;
  switch (which) {
  case 0:
    MPI_Allreduce(send, out, n, r.type, r.op, comm);
    NATIVE(Allreduce)(send, twin, n, r.type, r.op, comm);
    break;
  case 1:
    send = in_place && me == root ? MPI_IN_PLACE : in;
    MPI_Reduce(send, out, n, r.type, r.op, root, comm);
    /* MPICH 4.0 may crash in place at another root than 0: there the reference is not in place. */
    NATIVE(Reduce)(in, twin, n, r.type, r.op, root, comm);
    if (me != root) memcpy(twin, out, (size_t)most * r.bytes);
    break;
  case 2:
    MPI_Reduce_scatter_block(send, out, n, r.type, r.op, comm);
    NATIVE(Reduce_scatter_block)(in, twin, n, r.type, r.op, comm);
    break;
  default:
    MPI_Reduce_scatter(send, out, counts, r.type, r.op, comm);
    NATIVE(Reduce_scatter)(in, twin, counts, r.type, r.op, comm);
  }
  cases++;
  /* What lies between the parts of a pair means nothing. */
  if (r.type == MPI_DOUBLE_INT)
    for (int i = 0; i < got; i++) ((int *)out)[4 * i + 3] = ((int *)twin)[4 * i + 3];
  EXPECT(memcmp(out, twin, (size_t)got * r.bytes) == 0, "call %d: reduction %d of %d elements of %d bytes on %d ranks", step,
         which, n, r.bytes, p);
  EXPECT(is_intact(out, (size_t)most * r.bytes) && is_intact(in, (size_t)given * r.bytes), "call %d: a canary died", step);
  unguard(in), unguard(out), unguard(twin);
}

/* The same by an operation of our own on units of any type; a type must be the same on all ranks. */
static void reduce_own(int which, MPI_Comm comm, int me, int p) {
  int type = 1 + below(&shared, TYPES - 1), n = sizes() % 300, root = below(&shared, p);
  /* What is not commutative is left to the MPI's own reduce_scatter_block, which see above. */
  if (which == 2) type = PAIR;
  /* Intel MPI's own reduce by a commutative operation is wrong where a lower bound is negative, and no algorithm here keeps rank order. */
  static int intel = -1;
  if (intel < 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    intel = strstr(version, "Intel") != 0;
  }
  if (which == 1 && intel && type == NEGATIVE) type = GAPS;
  MPI_Op op = below(&shared, 2) ? composed : added;
  buffer in = make(which < 2 ? n : n * p, type), out = make(n, type);
  char *a = at(in.memory, &in, 0), *b = at(out.memory, &out, 0);
  int *given = packed(in.memory, &in, 0, which < 2 ? n : n * p), *got = malloc(8 * (size_t)n + 8);
  switch (which) {
  case 0:
    MPI_Allreduce(a, b, n, types[type], op, comm);
    NATIVE(Allreduce)(given, got, n, types[PAIR], op, comm);
    break;
  case 1:
    MPI_Reduce(a, b, n, types[type], op, root, comm);
    NATIVE(Reduce)(given, got, n, types[PAIR], op, root, comm);
    break;
  default:
    MPI_Reduce_scatter_block(a, b, n, types[type], op, comm);
    NATIVE(Reduce_scatter_block)(given, got, n, types[PAIR], op, comm);
  }
  if (which != 1 || me == root) unpacked(got, out.twin, &out, 0, n);
  else memcpy(out.twin, out.memory, out.bytes);
  same(&out, op == added ? "a commutative operation" : "an operation that is not commutative", p, n);
  free(given), free(got), drop(&in), drop(&out);
}

static void bcast(MPI_Comm comm, int p, int n) {
  int t = below(&own, TYPES), root = below(&shared, p);
  buffer b = make(n, t);
  int *values = packed(b.memory, &b, 0, n);
  MPI_Bcast(at(b.memory, &b, 0), count_of(&b, n), types[t], root, comm);
  NATIVE(Bcast)(values, 2 * n, MPI_INT, root, comm);
  unpacked(values, b.twin, &b, 0, n);
  same(&b, "bcast", p, n);
  free(values), drop(&b);
}

/* Blocks of different sizes lie in holes, in an order of each rank's own. */
static void gather(MPI_Comm comm, int me, int p, int n, int ragged) {
  int t = below(&own, TYPES), u = below(&own, TYPES), in_place = below(&shared, 4) == 0;
  int counts[64] = {0}, place[64], ints[64], ints_at[64], recv[64], recv_at[64], sum = 0, end = 0;
  for (int i = 0; i < p; i++) counts[i] = ragged ? below(&shared, n + 2) : n, ints[i] = 2 * counts[i], ints_at[i] = 2 * sum, sum += counts[i];
  /* Blocks lie apart and in another order on some ranks, one behind the other on others. */
  int loose = ragged && below(&own, 2);
  for (int k = 0, first = loose ? below(&own, p) : 0; k < p; k++) {
    int i = (first + k) % p;
    place[i] = end, end += counts[i] + (loose ? below(&own, 2) : 0);
  }
  buffer in = make(counts[me], t), out = make(end, u);
  for (int i = 0; i < p; i++) recv[i] = count_of(&out, counts[i]), recv_at[i] = place[i] * (u == PLAIN ? 2 : 1);
  int *given = in_place ? packed(out.memory, &out, place[me], counts[me]) : packed(in.memory, &in, 0, counts[me]);
  int *got = malloc(8 * (size_t)sum + 8);
  const void *send = in_place ? MPI_IN_PLACE : at(in.memory, &in, 0);
  char *into = at(out.memory, &out, 0);
  if (ragged) MPI_Allgatherv(send, count_of(&in, counts[me]), types[t], into, recv, recv_at, types[u], comm);
  else MPI_Allgather(send, count_of(&in, n), types[t], into, count_of(&out, n), types[u], comm);
  NATIVE(Allgatherv)(given, 2 * counts[me], MPI_INT, got, ints, ints_at, MPI_INT, comm);
  for (int i = 0; i < p; i++) unpacked(got + ints_at[i], out.twin, &out, place[i], counts[i]);
  same(&out, ragged ? "allgatherv" : "allgather", p, n);
  free(given), free(got), drop(&in), drop(&out);
}

/* What goes from i to j follows from both; in place it is the same both ways. */
static void exchange(MPI_Comm comm, int me, int p, int n, int ragged) {
  int t = below(&own, TYPES), u = below(&own, TYPES), in_place = below(&shared, 4) == 0;
  uint32_t salt = next(&shared);
  int sent[64], received[64], sent_at[64], received_at[64], all_sent = 0, all_received = 0;
  int ints_out[64], ints_in[64], ints_out_at[64], ints_in_at[64];
  for (int i = 0; i < p; i++) {
    int low = i < me ? i : me, high = i < me ? me : i;
    generator there = {salt + 77 * (in_place ? low * 64 + high : me * 64 + i)};
    generator here = {salt + 77 * (in_place ? low * 64 + high : i * 64 + me)};
    next(&there), next(&here);
    sent[i] = ragged ? below(&there, n / 4 + 3) * (below(&there, 3) > 0) : n;
    received[i] = ragged ? below(&here, n / 4 + 3) * (below(&here, 3) > 0) : n;
    sent_at[i] = all_sent, received_at[i] = all_received;
    all_sent += sent[i], all_received += received[i];
    ints_out[i] = 2 * sent[i], ints_in[i] = 2 * received[i], ints_out_at[i] = 2 * sent_at[i], ints_in_at[i] = 2 * received_at[i];
  }
  buffer in = make(all_sent, t), out = make(all_received, u);
  int *given = in_place ? packed(out.memory, &out, 0, all_received) : packed(in.memory, &in, 0, all_sent);
  int *got = malloc(8 * (size_t)all_received + 8);
  for (int i = 0; i < p; i++) {
    sent_at[i] *= t == PLAIN ? 2 : 1, received_at[i] *= u == PLAIN ? 2 : 1;
    sent[i] = count_of(&in, sent[i]), received[i] = count_of(&out, received[i]);
  }
  const void *send = in_place ? MPI_IN_PLACE : at(in.memory, &in, 0);
  char *into = at(out.memory, &out, 0);
  if (ragged) MPI_Alltoallv(send, sent, sent_at, types[t], into, received, received_at, types[u], comm);
  else MPI_Alltoall(send, count_of(&in, n), types[t], into, count_of(&out, n), types[u], comm);
  NATIVE(Alltoallv)(given, ints_out, ints_out_at, MPI_INT, got, ints_in, ints_in_at, MPI_INT, comm);
  unpacked(got, out.twin, &out, 0, all_received);
  same(&out, ragged ? "alltoallv" : "alltoall", p, n);
  free(given), free(got), drop(&in), drop(&out);
}

static void move(int which, MPI_Comm comm, int me, int p) {
  int n = which == 0 ? sizes() : sizes() * 2 / p;
  if (which == 0) bcast(comm, p, n);
  else if (which < 3) gather(comm, me, p, n, which == 2);
  else exchange(comm, me, p, n, which == 4);
}

/* Traffic of the program's own that is under way meanwhile: messages, short and long, nonblocking collectives on the world and on
   the communicators that the library serves, duplicates being made, and one-sided access. */
enum { PENDING = 8, LONG = 50000 };
static MPI_Request pending[PENDING];
static int *message[PENDING], due[PENDING], length[PENDING];
static MPI_Comm copies[PENDING];
static MPI_Win window;
static int64_t *counters;
static int64_t expected_count;

static void finish_traffic(int slot) {
  if (pending[slot] == MPI_REQUEST_NULL) return;
  MPI_Wait(&pending[slot], MPI_STATUS_IGNORE);
  if (copies[slot] != MPI_COMM_NULL) {
    int compared;
    MPI_Comm_compare(copies[slot], MPI_COMM_WORLD, &compared);
    EXPECT(compared == MPI_CONGRUENT, "call %d: a duplicate is not congruent", step);
    MPI_Comm_free(&copies[slot]);
    pending[slot] = MPI_REQUEST_NULL;
  } else {
    int *got = message[slot] + LONG;
    EXPECT(got[0] == due[slot] && got[length[slot] - 1] == due[slot], "call %d: what was under way came as %d instead of %d", step,
           got[0], due[slot]);
  }
}

static void traffic(int slot) {
  finish_traffic(slot);
  copies[slot] = MPI_COMM_NULL;
  int distance = 1 + below(&shared, size), kind = below(&shared, 8), n = below(&shared, 6) ? 1 + below(&shared, 300) : LONG;
  int *given = message[slot], *got = message[slot] + LONG;
  length[slot] = n, got[0] = got[n - 1] = -1;
  for (int i = 0; i < n; i++) given[i] = step + rank;
  int to = (rank + distance) % size, from = (rank - distance % size + size) % size;
  switch (kind) {
  case 0:
    MPI_Iallreduce(given, got, n, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &pending[slot]);
    due[slot] = step + size - 1;
    break;
  case 1:
    if (rank == 0) memcpy(got, given, n * sizeof(int));
    MPI_Ibcast(got, n, MPI_INT, 0, MPI_COMM_WORLD, &pending[slot]);
    due[slot] = step;
    break;
  /* Beside other nonblocking collectives Open MPI's own fails: of a communicator that has none, but collectives of the library's. */
  case 2:
    for (int i = 0; i < PENDING; i++)
      if (copies[i] != MPI_COMM_NULL) finish_traffic(i);
    MPI_Comm_idup(comms[1], &copies[slot], &pending[slot]);
    break;
  case 3: {
    /* An access to a rank that may be in a collective. */
    int64_t one = 1, before;
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, to, 0, MPI_SUM, window);
    MPI_Win_unlock(to, window);
    expected_count++;
    pending[slot] = MPI_REQUEST_NULL;
    break;
  }
  default: {
    MPI_Request sent;
    MPI_Irecv(got, n, MPI_INT, from, 100 + slot, MPI_COMM_WORLD, &pending[slot]);
    /* A long one is waited for: it is done when the other has come to its receive, in whatever it is by then. */
    MPI_Isend(given, n, MPI_INT, to, 100 + slot, MPI_COMM_WORLD, &sent);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    due[slot] = step + from;
  }
  }
}

/* A random collective. Halves of a split decide differently from here on only by their sizes: the generator is brought back in step. */
static void collective(MPI_Comm comm) {
  int kind = below(&shared, 16), me, p;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &p);
  generator here = shared;
  shared.state ^= (uint64_t)p * 0x9e3779b97f4a7c15u;
  if (kind < 5) move(kind, comm, me, p);
  else if (kind < 9) reduce_built_in(kind - 5, comm, me, p);
  else if (kind < 12) reduce_own(kind - 9, comm, me, p);
  else if (kind < 13) MPI_Barrier(comm);
  else move(kind - 13, comm, me, p);
  shared = here;
  next(&shared);
}

/* Communicators that come and go have an attribute whose callback calls collectives on them; it is set before the first collective on
   some ranks, and later on others. */
static int keyval;
static char is_set[COMMS];

static int ended(MPI_Comm comm, int key, void *value, void *extra) {
  int me, p;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &p);
  generator here = shared;
  shared.state ^= (uint64_t)p * 0x9e3779b97f4a7c15u;
  /* These are the MPI's own, and others of its functions fail here by themselves: MPICH 4.0's reduce, Intel's reduce_scatter. */
  for (int calls = below(&shared, 5); calls > 0; calls--) reduce_built_in(0, comm, me, p);
  shared = here;
  next(&shared);
  return MPI_SUCCESS;
}

static void set(int which) {
  if (which > 1 && !is_set[which]) MPI_Comm_set_attr(comms[which], keyval, 0);
  is_set[which] = 1;
}

static void renew(int which) {
  comms[which] = another();
  is_set[which] = 0;
  if (below(&own, 2)) set(which);
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  int calls = argc > 1 ? atoi(argv[1]) : 1000;
  uint64_t seed = argc > 2 ? strtoull(argv[2], 0, 10) : 1;
  shared.state = seed, own.state = seed * 1000003 + rank + 1;
  if (rank == 0) printf("seed %llu, %d calls, %d ranks\n", (unsigned long long)seed, calls, size);
  make_types();
  MPI_Op_create(compose, 0, &composed);
  MPI_Op_create(add, 1, &added);
  comms[0] = MPI_COMM_WORLD;
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ended, &keyval, 0);
  for (int i = 2; i < COMMS; i++) renew(i);
  for (int i = 0; i < PENDING; i++) {
    pending[i] = MPI_REQUEST_NULL, copies[i] = MPI_COMM_NULL;
    message[i] = malloc(2 * LONG * sizeof(int));
  }
  MPI_Win_allocate(sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &counters, &window);
  *counters = 0;
  PMPI_Barrier(MPI_COMM_WORLD);
  for (step = 0; step < calls; step++) {
    int which = below(&shared, COMMS);
    if (which > 1 && below(&shared, 60) == 0) {
      set(which);
      MPI_Comm_free(&comms[which]);
      renew(which);
    }
    if (below(&shared, 8) == 0) traffic(below(&shared, PENDING));
    collective(comms[which]);
    if (below(&own, 3) == 0) set(which);
  }
  for (int i = 0; i < PENDING; i++) finish_traffic(i), free(message[i]);
  NATIVE(Barrier)(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  /* MPICH 4.0 mistakes one rank for another, also by itself. */
#if !defined MPICH_NUMVERSION || MPICH_NUMVERSION >= 40100000
  EXPECT(*counters == expected_count, "%ld accesses arrived instead of %ld", (long)*counters, (long)expected_count);
#endif
  MPI_Win_unlock(rank, window);
  MPI_Win_free(&window);
  for (int i = 1; i < COMMS; i++) set(i), MPI_Comm_free(&comms[i]);
  for (int t = PAIR; t < TYPES; t++) MPI_Type_free(&types[t]);
  MPI_Op_free(&composed);
  MPI_Op_free(&added);
  return finish();
}
