/* churn: creates, uses and frees communicators of all ranks and of some, with late ranks, while others are in use. Later
   communicators reuse the segments, programs and tags of freed ones. */
#include "plain.h"
#include <unistd.h>

enum { ALIVE = 40, ROUNDS = 400 };

/* The same numbers on all ranks. */
static unsigned long seed = 77;
static unsigned below(unsigned n) {
  seed = seed * 6364136223846793005UL + 1442695040888963407UL;
  return (unsigned)(seed >> 33) % n;
}

static double in[4096], out[20000];

static void make(MPI_Comm *comm) {
  switch (below(3)) {
  case 0: MPI_Comm_dup(MPI_COMM_WORLD, comm); break;
  case 1: MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, comm); break;
  /* Overlaps the others, in another order. */
  default: MPI_Comm_split(MPI_COMM_WORLD, (rank + 1) / 2 % 2, -rank, comm);
  }
}

static void use(MPI_Comm comm, int round) {
  int me, all;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &all);
  int n = 1 + below(below(2) ? 8 : 2000);
  for (int i = 0; i < n; i++) in[i] = me + i + round;
  if (random() % 30 == 0) usleep(random() % 500);
  if (below(2)) {
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++)
      EXPECT(out[i] == all * (all - 1) / 2 + (double)all * (i + round), "a sum of %d elements in round %d", n, round);
  } else {
    MPI_Allgather(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, comm);
    for (int r = 0; r < all; r++)
      for (int i = 0; i < n; i++) EXPECT(out[r * n + i] == r + i + round, "blocks of %d elements in round %d", n, round);
  }
  cases++;
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  srandom(rank + 3);
  MPI_Comm comms[ALIVE];
  int is_there[ALIVE] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    int which = below(ALIVE);
    if (!is_there[which]) make(&comms[which]);
    is_there[which] = 1;
    for (int calls = 1 + below(4); calls > 0; calls--) use(comms[which], round);
    /* Now and then one goes, and rarely all do. */
    for (int i = 0; i < ALIVE; i++)
      if (is_there[i] && ((i == which && below(3) == 0) || round % 60 == 59 || round == ROUNDS - 1)) {
        MPI_Comm_free(&comms[i]);
        is_there[i] = 0;
      }
  }
  return finish();
}
