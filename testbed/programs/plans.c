/* Life cycle of a plan in the C API: whether it may be started or freed must be the same on all ranks, however far each has
   progressed. */
#include "check.h"
#include <unistd.h>

static double in[100], out[100];

static void right(int round, const char *when) {
  for (int i = 0; i < 100; i++) EXPECT(out[i] == size * (size - 1) / 2 + size * (double)(i + round), "%s: element %d is %g", when, i, out[i]);
  cases++;
}

static void fill(int round) {
  for (int i = 0; i < 100; i++) in[i] = rank + i + round, out[i] = -1;
}

static void life(MPI_Comm comm) {
  bruckner_plan *plan;
  int done = -1;
  MUST(bruckner_allreduce_init(in, out, 100, MPI_DOUBLE, MPI_SUM, comm, "", &plan));
  MUST(bruckner_wait(plan));
  MUST(bruckner_test(plan, &done));
  EXPECT(done, "a plan that was never started is not done");
  for (int round = 0; round < 50; round++) {
    fill(round);
    MUST(bruckner_start(plan));
    /* One of the ranks is surely done by then. */
    if (round % 10 == 5 && rank == round % size) usleep(5000);
    EXPECT(bruckner_start(plan) != 0, "round %d: an active plan was started", round);
    EXPECT(bruckner_run(plan) != 0, "round %d: an active plan was run", round);
    bruckner_plan *same = plan;
    EXPECT(bruckner_free(&same) != 0 && same == plan, "round %d: an active plan was freed", round);
    if (round % 2) {
      MUST(bruckner_wait(plan));
    } else {
      for (done = 0; !done;) MUST(bruckner_test(plan, &done));
    }
    right(round, "started");
    if (round % 5) continue;
    fill(round);
    MUST(bruckner_run(plan));
    right(round, "run");
  }
  MUST(bruckner_free(&plan));
  EXPECT(!plan, "a pointer to a plan that is freed");
  MUST(bruckner_free(&plan));
}

int main(int argc, char **argv) {
  begin(&argc, &argv);
  life(MPI_COMM_WORLD);
  for (int i = 0; i < 3; i++) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    life(comm);
    MPI_Comm_free(&comm);
  }
  /* As destructors of static objects do: freed after MPI_Finalize, whether its messages were persistent requests at last or not. */
  bruckner_plan *plans[2];
  for (int i = 0; i < 2; i++) {
    MUST(bruckner_allreduce_init(in, out, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, "", &plans[i]));
    for (int round = 0; round < 30 + i; round++) MUST(bruckner_run(plans[i]));
  }
  long failed = total();
  MPI_Finalize();
  for (int i = 0; i < 2; i++) failed += bruckner_free(&plans[i]) != 0;
  return failed != 0;
}
