/* Puts ext_mpi_collectives (persistent collectives of CSCS) behind MPI's own
 * signatures: MPI_Allreduce and MPI_Allgather.  The first call with given
 * arguments makes a plan (slow: it measures), later ones start it and wait.
 * Plans hold the buffers' addresses: a rank may change its buffers only if
 * all ranks do, or some would make a plan while others wait.
 * The first call of all must be made by every rank of MPI_COMM_WORLD.
 *
 * Refused with MPI_ERR_OTHER, without a call: operations other than MPI_SUM
 * on double, float, int and long; types with gaps; in-place allgather; on one
 * node, allgather of less than a cache line in all; nodes of unequal size or
 * ranks not in node order (the peer fails in these).  Not exported:
 * reduce_scatter (the peer's result is wrong), alltoall (it has none).
 *
 * Environment (rank 0's counts): EXT_MPI_ALLREDUCE_PORTS,
 * EXT_MPI_ALLGATHER_PORTS, or EXT_MPI_NUM_PORTS for both, is the exchange
 * between nodes as the peer writes it, "NODES(PORTS...)"; ignored where NODES
 * is not the number of nodes.  Unset: the peer's own choice.
 * EXT_MPI_COPYIN, EXT_MPI_ALTERNATING, EXT_MPI_NOT_RECURSIVE and
 * EXT_MPI_VERBOSE are read by the peer. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include "ext_mpi.h"
#include "ports_groups.h"
#include "read_write.h"

#define EXPORT __attribute__((visibility("default")))

/* the peer's settings that its header leaves out */
extern int ext_mpi_debug, *ext_mpi_fixed_factors_ports, *ext_mpi_fixed_factors_groups;

enum { ALLREDUCE, ALLGATHER };
enum { ONE_LINE = CACHE_LINE_SIZE - OFFSET_FAST };

struct ports { int *ports, *groups, nodes; };
static struct ports settings[2];

struct topology { struct topology *next; MPI_Comm comm; int nodes; /* 0: refused */ };
static struct topology *topologies;

struct plan {
  struct plan *next;
  const void *send;
  void *receive;
  MPI_Comm comm;
  MPI_Datatype type;
  int collective, count, handle;
};
static struct plan *plans;

static void read_setting(struct ports *to, const char *name) {
  char text[256] = "";
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    const char *value = getenv(name);
    if (!value) value = getenv("EXT_MPI_NUM_PORTS");
    if (value && strlen(value) < sizeof text && strchr(value, '(') && strchr(value, ')')) strcpy(text, value);
  }
  PMPI_Bcast(text, sizeof text, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (!*text) return;
  to->nodes = atoi(text);
  ext_mpi_scan_ports_groups(text, &to->ports, &to->groups);
}

static void initialise(void) {
  static int done;
  if (done) return;
  done = 1;
  EXT_MPI_Init();
  /* its self-check writes test data into the caller's receive buffer */
  ext_mpi_debug = 0;
  read_setting(&settings[ALLREDUCE], "EXT_MPI_ALLREDUCE_PORTS");
  read_setting(&settings[ALLGATHER], "EXT_MPI_ALLGATHER_PORTS");
}

/* The number of nodes if all have equally many ranks, in order; else 0. */
static int count_nodes(MPI_Comm comm) {
  for (struct topology *t = topologies; t; t = t->next)
    if (t->comm == comm) return t->nodes;
  struct topology *t = malloc(sizeof *t);
  if (!t) return 0;
  MPI_Comm node;
  int rank, size, leader, range[3];
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
  PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  int local_rank, local_size;
  PMPI_Comm_rank(node, &local_rank);
  PMPI_Comm_size(node, &local_size);
  leader = rank;
  PMPI_Bcast(&leader, 1, MPI_INT, 0, node);
  PMPI_Comm_free(&node);
  range[0] = local_size, range[1] = -local_size;
  range[2] = leader % local_size == 0 && rank == leader + local_rank;
  PMPI_Allreduce(MPI_IN_PLACE, range, 3, MPI_INT, MPI_MIN, comm);
  t->comm = comm;
  t->nodes = range[0] == -range[1] && range[2] ? size / local_size : 0;
  t->next = topologies;
  topologies = t;
  return t->nodes;
}

static int run(int collective, const void *send, void *receive, int count, MPI_Datatype type, MPI_Comm comm) {
  struct plan *plan;
  for (plan = plans; plan; plan = plan->next)
    if (plan->count == count && plan->receive == receive && plan->send == send && plan->collective == collective &&
        plan->type == type && plan->comm == comm)
      break;
  if (!plan) {
    initialise();
    int nodes = count_nodes(comm);
    if (!nodes || !(plan = malloc(sizeof *plan))) return MPI_ERR_OTHER;
    *plan = (struct plan){plans, send, receive, comm, type, collective, count, -1};
    plans = plan;
    struct ports *fixed = &settings[collective];
    ext_mpi_fixed_factors_ports = fixed->nodes == nodes ? fixed->ports : NULL;
    ext_mpi_fixed_factors_groups = fixed->nodes == nodes ? fixed->groups : NULL;
    int code;
    if (collective == ALLREDUCE) {
      /* measuring overwrites the receive buffer, the input if in place */
      int bytes;
      PMPI_Type_size(type, &bytes);
      void *input = send == MPI_IN_PLACE || send == receive ? malloc((size_t)bytes * count) : NULL;
      if (input) memcpy(input, receive, (size_t)bytes * count);
      code = EXT_MPI_Allreduce_init(send, receive, count, type, MPI_SUM, comm, MPI_INFO_NULL, &plan->handle);
      if (input) memcpy(receive, input, (size_t)bytes * count);
      free(input);
    } else {
      code = EXT_MPI_Allgather_init((void *)send, count, type, receive, count, type, comm, MPI_INFO_NULL, &plan->handle);
    }
    if (code) plan->handle = -1;
  }
  if (plan->handle < 0) return MPI_ERR_OTHER;
  return EXT_MPI_Start(plan->handle) || EXT_MPI_Wait(plan->handle) ? MPI_ERR_OTHER : MPI_SUCCESS;
}

EXPORT int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (op != MPI_SUM || count < 1 || (type != MPI_DOUBLE && type != MPI_FLOAT && type != MPI_INT && type != MPI_LONG))
    return MPI_ERR_OTHER;
  return run(ALLREDUCE, send, receive, count, type, comm);
}

EXPORT int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *receive, int receive_count,
                         MPI_Datatype receive_type, MPI_Comm comm) {
  MPI_Aint low, extent;
  int size;
  if (send == MPI_IN_PLACE || send_count != receive_count || send_type != receive_type || send_count < 1)
    return MPI_ERR_OTHER;
  PMPI_Type_size(send_type, &size);
  PMPI_Type_get_extent(send_type, &low, &extent);
  if (low != 0 || extent != size) return MPI_ERR_OTHER;
  /* on one node the peer delivers nothing if all fits one cache line */
  int ranks;
  PMPI_Comm_size(comm, &ranks);
  if ((size_t)size * send_count * ranks <= ONE_LINE) {
    initialise();
    if (count_nodes(comm) <= 1) return MPI_ERR_OTHER;
  }
  return run(ALLGATHER, send, receive, send_count, send_type, comm);
}
