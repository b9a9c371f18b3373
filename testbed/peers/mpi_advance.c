/* Puts MPI Advance (mpi-advance/locality_aware) behind MPI's own signatures:
 * MPI_Allreduce, MPI_Allgather, MPI_Alltoall.  The peer has no
 * reduce_scatter.  It leaves the choice of algorithm to its user; here the
 * environment of the communicator's rank 0 makes it, once per communicator:
 *   MPI_ADVANCE_ALLREDUCE, MPI_ADVANCE_ALLGATHER, MPI_ADVANCE_ALLTOALL
 *                         one of the names in the tables below
 *   MPI_ADVANCE_LEADERS   leaders (groups) per node for "multileader..." and
 *                         "locality..." (2; must divide the ranks of a node)
 *   MPI_ADVANCE_RADIX     for dissemination_radix (4)
 *
 * Refused with MPI_ERR_OTHER, without a call: MPI_IN_PLACE and types with
 * gaps (the peer crashes); operations other than MPI_SUM in the
 * dissemination by nodes (idle ranks add zeros), and communicators with other
 * ranks than MPI_COMM_WORLD there; non-commutative operations; nodes of
 * unequal size or ranks not in node order (wrong or hanging); numbers of ranks
 * that an algorithm does not serve; names that do not exist or were not built
 * in. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "collective/allgather.h"
#include "collective/allreduce.h"
#include "collective/alltoall.h"
#include "communicator/MPIL_Comm.h"
#include "locality_aware.h"

#define EXPORT __attribute__((visibility("default")))
#define REDUCE_ARGUMENTS const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op
#define GATHER_ARGUMENTS \
  const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count, MPI_Datatype receive_type
#define GATHER_VALUES send, send_count, send_type, receive, receive_count, receive_type

/* What is used where the environment says nothing; "" is the first of a table. */
#ifndef ALLREDUCE_DEFAULT
#define ALLREDUCE_DEFAULT ""
#define ALLGATHER_DEFAULT ""
#define ALLTOALL_DEFAULT ""
#endif

enum { ALLREDUCE, ALLGATHER, ALLTOALL, COLLECTIVES };

/* One communicator's state for one collective. */
struct context {
  struct context *next;
  MPI_Comm comm;
  int collective, leaders;
  allreduce_ftn reduce;  /* the algorithm, or NULL if refused */
  alltoall_ftn exchange;
  int only_sum;
  MPIL_Comm *peer;
};
static struct context *contexts, *current;

/* The number of leaders is fixed at 4 in the peer's own wrappers. */
#define LEADERS(name, function, helper)                                                           \
  static int name(GATHER_ARGUMENTS, MPIL_Comm *comm) {                                            \
    return function(helper, GATHER_VALUES, comm, current->leaders);                               \
  }
LEADERS(multileader_pairwise, alltoall_multileader, pairwise_helper)
LEADERS(multileader_nonblocking, alltoall_multileader, nonblocking_helper)
LEADERS(locality_pairwise, alltoall_locality_aware, pairwise_helper)
LEADERS(locality_nonblocking, alltoall_locality_aware, nonblocking_helper)

/* Branch locality_allgather: takes the communicator by value, so its parts
 * must exist before (else every call would make them anew). */
#ifdef HIERARCHICAL
#define BY_VALUE_REDUCE(name)                                                      \
  int name(REDUCE_ARGUMENTS, MPIL_Comm comm);                                      \
  static int reduce_##name(REDUCE_ARGUMENTS, MPIL_Comm *comm) {                    \
    return name(send, receive, count, type, op, *comm);                            \
  }
#define BY_VALUE_GATHER(name)                                                      \
  int name(GATHER_ARGUMENTS, MPIL_Comm comm);                                      \
  static int gather_##name(GATHER_ARGUMENTS, MPIL_Comm *comm) {                    \
    return name(GATHER_VALUES, *comm);                                             \
  }
BY_VALUE_REDUCE(allreduce_hierarchical)
BY_VALUE_REDUCE(allreduce_multileader)
BY_VALUE_REDUCE(allreduce_node_aware)
BY_VALUE_REDUCE(allreduce_locality_aware)
BY_VALUE_REDUCE(allreduce_multileader_locality)
BY_VALUE_GATHER(allgather_hierarchical)
BY_VALUE_GATHER(allgather_multileader)
BY_VALUE_GATHER(allgather_node_aware)
BY_VALUE_GATHER(allgather_locality_aware)
BY_VALUE_GATHER(allgather_multileader_locality_aware)

/* returns an error code though it did its work */
static int gather_locality_aware(GATHER_ARGUMENTS, MPIL_Comm *comm) {
  int code = gather_allgather_locality_aware(GATHER_VALUES, comm);
  return code == MPI_ERR_OP ? MPI_SUCCESS : code;
}
#endif

/* Branch collectives: some of its functions return no value. */
#ifdef OLDER
#define OLDER_GLOBAL(name)                                                         \
  void name(GATHER_ARGUMENTS, MPI_Comm comm);                                      \
  static int gather_##name(GATHER_ARGUMENTS, MPIL_Comm *comm) {                    \
    name(GATHER_VALUES, comm->global_comm);                                        \
    return MPI_SUCCESS;                                                            \
  }
#define OLDER_LOCAL(name)                                                          \
  void name(GATHER_ARGUMENTS, MPIL_Comm *comm);                                    \
  static int gather_##name(GATHER_ARGUMENTS, MPIL_Comm *comm) {                    \
    name(GATHER_VALUES, comm);                                                     \
    return MPI_SUCCESS;                                                            \
  }
OLDER_GLOBAL(allgather_p2p)
OLDER_GLOBAL(older_allgather_bruck)
OLDER_LOCAL(allgather_loc_p2p)
OLDER_LOCAL(allgather_loc_bruck)
OLDER_LOCAL(allgather_loc_ring)
OLDER_LOCAL(allgather_hier_bruck)
OLDER_LOCAL(allgather_mult_hier_bruck)
#endif

/* The first name of each table is the default. */
enum { ANY, TWOS, PPNS }; /* right for any numbers; for powers of two; and nodes a power of ranks per node */
static const struct { const char *name; allreduce_ftn function; int only_sum; } reduces[] = {
#ifdef HIERARCHICAL
  {"hierarchical", reduce_allreduce_hierarchical, 0},
  {"multileader", reduce_allreduce_multileader, 0},
  {"node_aware", reduce_allreduce_node_aware, 0},
  {"locality_aware", reduce_allreduce_locality_aware, 0},
  {"multileader_locality", reduce_allreduce_multileader_locality, 0},
#endif
  {"dissemination_loc", allreduce_dissemination_loc, 1},
  {"recursive_doubling", allreduce_recursive_doubling, 0},
  {"dissemination_radix", allreduce_dissemination_radix, 0},
};
static const struct { const char *name; alltoall_ftn function; int collective, needs; } exchanges[] = {
  {"node_aware_nonblocking", alltoall_node_aware_nonblocking, ALLTOALL, ANY},
  {"hierarchical_nonblocking", alltoall_hierarchical_nonblocking, ALLTOALL, ANY},
  {"hierarchical_pairwise", alltoall_hierarchical_pairwise, ALLTOALL, ANY},
  {"node_aware_pairwise", alltoall_node_aware_pairwise, ALLTOALL, ANY},
  {"nonblocking", alltoall_nonblocking, ALLTOALL, ANY},
  {"pairwise", alltoall_pairwise, ALLTOALL, ANY},
  {"multileader_nonblocking", multileader_nonblocking, ALLTOALL, ANY},
  {"multileader_pairwise", multileader_pairwise, ALLTOALL, ANY},
  {"locality_nonblocking", locality_nonblocking, ALLTOALL, ANY},
  {"locality_pairwise", locality_pairwise, ALLTOALL, ANY},
  {"multileader_locality_nonblocking", alltoall_multileader_locality_nonblocking, ALLTOALL, ANY},
  {"multileader_locality_pairwise", alltoall_multileader_locality_pairwise, ALLTOALL, ANY},
#ifdef OLDER
  {"loc_p2p", gather_allgather_loc_p2p, ALLGATHER, ANY},
  {"p2p", gather_allgather_p2p, ALLGATHER, ANY},
  {"bruck", gather_older_allgather_bruck, ALLGATHER, TWOS},
  {"loc_bruck", gather_allgather_loc_bruck, ALLGATHER, PPNS},
  {"loc_ring", gather_allgather_loc_ring, ALLGATHER, ANY},
  {"hier_bruck", gather_allgather_hier_bruck, ALLGATHER, TWOS},
  {"mult_hier_bruck", gather_allgather_mult_hier_bruck, ALLGATHER, TWOS},
#endif
#ifdef HIERARCHICAL
  {"hierarchical", gather_allgather_hierarchical, ALLGATHER, ANY},
  {"multileader", gather_allgather_multileader, ALLGATHER, ANY},
  {"node_aware", gather_allgather_node_aware, ALLGATHER, ANY},
  {"locality_aware", gather_locality_aware, ALLGATHER, ANY},
  {"multileader_locality", gather_allgather_multileader_locality_aware, ALLGATHER, ANY},
#endif
  {"ring", allgather_ring, ALLGATHER, ANY},
};

static int is_power(int n) { return (n & (n - 1)) == 0; }

/* Makes the state for a communicator at its first use; all ranks call it. */
static struct context *setup(int collective, MPI_Comm comm) {
  static const char *variables[] = {"MPI_ADVANCE_ALLREDUCE", "MPI_ADVANCE_ALLGATHER", "MPI_ADVANCE_ALLTOALL"};
  static const char *defaults[] = {ALLREDUCE_DEFAULT, ALLGATHER_DEFAULT, ALLTOALL_DEFAULT};
  struct { char name[64]; int leaders, radix; } setting = {"", 2, 4};
  struct context *context = calloc(1, sizeof *context);
  if (!context) return NULL;
  int rank, size, local_rank, local_size, range[3];
  MPI_Comm node, own;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
  if (rank == 0) {
    const char *text = getenv(variables[collective]);
    if (!text) text = defaults[collective];
    if (text) snprintf(setting.name, sizeof setting.name, "%s", text);
    if ((text = getenv("MPI_ADVANCE_LEADERS"))) setting.leaders = atoi(text);
    if ((text = getenv("MPI_ADVANCE_RADIX"))) setting.radix = atoi(text);
  }
  PMPI_Bcast(&setting, sizeof setting, MPI_BYTE, 0, comm);
  PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  PMPI_Comm_rank(node, &local_rank);
  PMPI_Comm_size(node, &local_size);
  int leader = rank;
  PMPI_Bcast(&leader, 1, MPI_INT, 0, node);
  PMPI_Comm_free(&node);
  range[0] = local_size, range[1] = -local_size;
  range[2] = leader % local_size == 0 && rank == leader + local_rank;
  PMPI_Allreduce(MPI_IN_PLACE, range, 3, MPI_INT, MPI_MIN, comm);

  context->comm = comm;
  context->collective = collective;
  context->next = contexts;
  contexts = context;
  if (range[0] != -range[1] || !range[2] || setting.radix < 2) return context; /* refused */
  if (setting.leaders < 1 || setting.leaders > local_size) setting.leaders = local_size;
  if (local_size % setting.leaders) return context;
  context->leaders = setting.leaders;

  PMPI_Comm_dup(comm, &own);
  MPIL_Comm_init(&context->peer, own);
  /* it stored the attribute's address in place of its value */
  int *limit, found;
  PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
  context->peer->max_tag = found ? *limit : 32767;
  context->peer->tag = 126;
  MPIL_Comm_topo_init(context->peer);
  MPIL_Comm_leader_init(context->peer, local_size / setting.leaders);
  MPIL_Set_collective_radix(setting.radix);

  if (collective == ALLREDUCE) {
    for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++)
      if (!*setting.name || !strcmp(setting.name, reduces[i].name)) {
        int same = MPI_CONGRUENT;
        /* it uses the rank in MPI_COMM_WORLD, too */
        if (reduces[i].only_sum) PMPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
        if (same == MPI_CONGRUENT || same == MPI_IDENT) context->reduce = reduces[i].function;
        context->only_sum = reduces[i].only_sum;
        break;
      }
  } else {
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++)
      if (exchanges[i].collective == collective && (!*setting.name || !strcmp(setting.name, exchanges[i].name))) {
        int power = 1, nodes = size / local_size;
        if (local_size > 1)
          while (power < nodes) power *= local_size;
        if ((exchanges[i].needs == ANY || (is_power(local_size) && is_power(nodes))) &&
            (exchanges[i].needs != PPNS || power == nodes))
          context->exchange = exchanges[i].function;
        break;
      }
  }
  if (!context->reduce && !context->exchange && rank == 0)
    fprintf(stderr, "mpi_advance: %s=%s: no such algorithm here\n", variables[collective], setting.name);
  return context;
}

static struct context *find(int collective, MPI_Comm comm) {
  for (struct context *c = contexts; c; c = c->next)
    if (c->comm == comm && c->collective == collective) return c;
  return setup(collective, comm);
}

static int gapless(MPI_Datatype type) {
  MPI_Aint low, extent;
  int size;
  PMPI_Type_size(type, &size);
  PMPI_Type_get_extent(type, &low, &extent);
  return low == 0 && extent == size;
}

EXPORT int MPI_Allreduce(REDUCE_ARGUMENTS, MPI_Comm comm) {
  int commutes = 1;
  if (op != MPI_SUM) PMPI_Op_commutative(op, &commutes);
  if (send == MPI_IN_PLACE || send == receive || count < 1 || !commutes || !gapless(type)) return MPI_ERR_OTHER;
  struct context *context = find(ALLREDUCE, comm);
  if (!context || !context->reduce || (context->only_sum && op != MPI_SUM)) return MPI_ERR_OTHER;
  return context->reduce(send, receive, count, type, op, context->peer);
}

static int exchange(int collective, GATHER_ARGUMENTS, MPI_Comm comm) {
  if (send == MPI_IN_PLACE || receive == MPI_IN_PLACE || send_count != receive_count || send_type != receive_type ||
      send_count < 1 || !gapless(send_type))
    return MPI_ERR_OTHER;
  struct context *context = find(collective, comm);
  if (!context || !context->exchange) return MPI_ERR_OTHER;
  current = context;
  return context->exchange(GATHER_VALUES, context->peer);
}

EXPORT int MPI_Allgather(GATHER_ARGUMENTS, MPI_Comm comm) { return exchange(ALLGATHER, GATHER_VALUES, comm); }

EXPORT int MPI_Alltoall(GATHER_ARGUMENTS, MPI_Comm comm) { return exchange(ALLTOALL, GATHER_VALUES, comm); }
