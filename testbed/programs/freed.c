/* Frees communicators whose attribute callbacks call collectives on them, and creates others that get the same handle. Attributes are
   set before and after the first collective, in different orders on different ranks; callbacks also free other communicators with
   callbacks. Every sum must be over the ranks of the communicator that was passed.

   freed [pending] [windows] [refused]    "pending": also communicators that are freed with messages under way: MPICH runs
   callbacks when those are done; "windows": also windows, which may have copies of communicators; "refused": also MPI_Comm_free of the
   world, which is an error, and of a communicator whose callback refuses */
#include "common.h"

static int callbacks;

static void use(MPI_Comm comm, int calls) {
  int me, n;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &n);
  for (int i = 0; i < calls; i++) {
    double mine = me + i, sum = -1;
    int64_t one = 10 * me + i, all[64];
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    EXPECT(sum == n * (n - 1) / 2.0 + (double)n * i, "call %d of %d ranks: the sum is %g", i, n, sum);
    MPI_Allgather(&one, 1, MPI_INT64_T, all, 1, MPI_INT64_T, comm);
    for (int r = 0; r < n; r++) EXPECT(all[r] == 10 * r + i, "call %d of %d ranks: block %d is %ld", i, n, r, (long)all[r]);
    MPI_Barrier(comm);
    cases++;
  }
}

/* What a callback does is told by the value of the attribute: calls to make, and a communicator to free first. */
typedef struct {
  int calls;
  MPI_Comm other;
} work;

static int ended(MPI_Comm comm, int key, void *value, void *extra) {
  work *w = value;
  callbacks++;
  if (w->other != MPI_COMM_NULL) {
    use(w->other, 2);
    MPI_Comm_free(&w->other);
  }
  use(comm, w->calls);
  return MPI_SUCCESS;
}

static int copied(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
  callbacks++;
  use(comm, ((work *)in)->calls);
  *(void **)out = in;
  return *flag = 1, MPI_SUCCESS;
}

#ifdef OPEN_MPI
/* Refuses as often as the value of the attribute says. */
static int refuses(MPI_Comm comm, int key, void *value, void *extra) {
  callbacks++;
  return (*(int *)value)-- > 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}
#endif

static MPI_Comm make(int round) {
  MPI_Comm comm;
  switch (round % 4) {
  case 0: MPI_Comm_dup(MPI_COMM_WORLD, &comm); break;
  case 1: MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm); break;
  case 2: MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm); break;
  default: MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &comm);
  }
  return comm;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int pending = 0, windows = 0, refused = 0;
  for (int i = 1; i < argc; i++) pending |= !strcmp(argv[i], "pending"), windows |= !strcmp(argv[i], "windows"), refused |= !strcmp(argv[i], "refused");
  int plain, copies;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ended, &plain, 0);
  MPI_Comm_create_keyval(copied, ended, &copies, 0);
  static work works[4000];
  for (int round = 0; round < 80; round++) {
    work *first = &works[4 * round], *second = first + 1, *third = first + 2, *nested = first + 3;
    *first = (work){round % 3, MPI_COMM_NULL}, *second = (work){round % 6, MPI_COMM_NULL}, *third = *nested = *first;
    MPI_Comm comm = make(round);
    /* The same attributes on all ranks, but our own lies before them on some and behind them on others. */
    int early = (round + (round / 5) * rank) % 2;
    if (round % 7 == 0) {
      first->other = make(round / 7);
      MPI_Comm_set_attr(first->other, plain, nested);
      if (round % 2) use(first->other, 4);
    }
    if (early) MPI_Comm_set_attr(comm, plain, first);
    use(comm, (round / 3) % 5);
    if (!early) MPI_Comm_set_attr(comm, plain, first);
    MPI_Comm_set_attr(comm, copies, second);
    if (round % 3 == 0) {
      MPI_Comm duplicate;
      MPI_Comm_dup(comm, &duplicate);
      use(duplicate, round % 5);
      MPI_Comm_free(&duplicate);
    }
    /* Deleted, or replaced, while the communicator lives on. */
    if (round % 8 == 1) MPI_Comm_delete_attr(comm, plain);
    if (round % 8 == 2) MPI_Comm_set_attr(comm, copies, third);
    use(comm, 1);
    if (pending && round % 3 == 1) {
      int me, n, out = round, in = -1;
      MPI_Comm_rank(comm, &me);
      MPI_Comm_size(comm, &n);
      MPI_Request requests[2];
      MPI_Status statuses[2];
      MPI_Irecv(&in, 1, MPI_INT, (me + n - 1) % n, 0, comm, &requests[0]);
      MPI_Isend(&out, 1, MPI_INT, (me + 1) % n, 0, comm, &requests[1]);
      MPI_Comm_free(&comm);
      if (round % 2) MPI_Barrier(MPI_COMM_WORLD);
      MPI_Waitall(2, requests, statuses);
      EXPECT(in == round, "a message on a communicator that was freed: %d", in);
    } else if (round % 4 == 3) {
      MPI_Comm_disconnect(&comm);
    } else {
      MPI_Comm_free(&comm);
    }
    /* Other ranks, and likely the same handle. */
    comm = make(round + 1 + round % 2);
    use(comm, 6);
    MPI_Comm_free(&comm);
    if (round % 10 == 0) use(MPI_COMM_WORLD, 1);
  }
  for (int round = 0; windows && round < 6; round++) {
    MPI_Comm comm = make(round);
    work w = {round, MPI_COMM_NULL};
    MPI_Comm_set_attr(comm, copies, &w);
    use(comm, round);
    MPI_Win window;
    MPI_Win_create(&w, 0, 1, MPI_INFO_NULL, comm, &window);
    use(comm, 1);
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
    comm = make(round + 1);
    use(comm, 5);
    MPI_Comm_free(&comm);
  }
  /* What may not be freed lives on, also if only one rank tries. */
  MPI_Comm world = MPI_COMM_WORLD;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (refused && rank == 0) EXPECT(MPI_Comm_free(&world) != MPI_SUCCESS, "the world was freed");
  use(MPI_COMM_WORLD, 8);
#ifdef OPEN_MPI
  /* MPICH returns what the last callback said: it frees on some ranks where attributes are in another order on each. */
  int refusing;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuses, &refusing, 0);
  for (int round = 0; refused && round < 12; round++) {
    MPI_Comm comm = make(round), same = comm;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int times = 1, early = round % 3 == 2 ? round % 2 : rank % 2;
    if (early) MPI_Comm_set_attr(comm, refusing, &times);
    use(comm, round % 6);
    if (!early) MPI_Comm_set_attr(comm, refusing, &times);
    EXPECT(MPI_Comm_free(&same) != MPI_SUCCESS, "round %d: nobody heard the callback", round);
    use(comm, 6);
    EXPECT(MPI_Comm_free(&comm) == MPI_SUCCESS, "round %d: it was not freed", round);
    comm = make(round + 1);
    use(comm, 5);
    MPI_Comm_free(&comm);
  }
#endif
  EXPECT(callbacks > 150, "there were %d callbacks", callbacks);
  return total() ? (MPI_Finalize(), 1) : MPI_Finalize();
}
