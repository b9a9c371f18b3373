/* Life cycle of a persistent request: Start and Startall in any order, every form of Wait and Test on arrays that mix plans, messages,
   inactive requests and null requests, Request_get_status, Request_free. Any number of ranks. */
#include "plain.h"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#ifdef OPEN_MPI
#if OMPI_MAJOR_VERSION < 5
#include "extensions.h"
#endif
#endif

enum { SUM, GATHER, INACTIVE, RECV, SEND, NOTHING, COUNT };
static MPI_Request requests[COUNT];
static int64_t sum_in, sum_out, gather_in, gather_out[64], other_out, came, goes;

static void start(int again, int right, int left) {
  sum_in = rank + again, gather_in = 100 * rank + again, goes = 7 * rank + again;
  sum_out = came = -1;
  memset(gather_out, -1, sizeof gather_out);
  MPI_Irecv(&came, 1, MPI_INT64_T, left, 3, MPI_COMM_WORLD, &requests[RECV]);
  MPI_Isend(&goes, 1, MPI_INT64_T, right, 3, MPI_COMM_WORLD, &requests[SEND]);
  MPI_Request both[2] = {requests[SUM], requests[GATHER]}, swapped[2] = {requests[GATHER], requests[SUM]};
  switch ((again + rank) % 3) {
  case 0: MPI_Startall(2, both); break;
  case 1: MPI_Startall(2, swapped); break;
  default: MPI_Start(&requests[GATHER]), MPI_Start(&requests[SUM]);
  }
}

static void check(int again, int left, const char *how) {
  cases++;
  EXPECT(sum_out == (int64_t)size * (size - 1) / 2 + (int64_t)size * again, "%s, %d: the sum is %ld", how, again, (long)sum_out);
  for (int r = 0; r < size; r++) EXPECT(gather_out[r] == 100 * r + again, "%s, %d: block %d is %ld", how, again, r, (long)gather_out[r]);
  EXPECT(came == 7 * left + again, "%s, %d: the message is %ld", how, again, (long)came);
  EXPECT(requests[SUM] != MPI_REQUEST_NULL && requests[GATHER] != MPI_REQUEST_NULL, "%s: a persistent request is gone", how);
  EXPECT(requests[RECV] == MPI_REQUEST_NULL && requests[SEND] == MPI_REQUEST_NULL, "%s: a message is still there", how);
}

static void is_empty(MPI_Status *status, const char *how) {
  int count = -1;
  MPI_Get_count(status, MPI_BYTE, &count);
  EXPECT(count == 0 && status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG, "%s: not an empty status", how);
}

/* What a request was made of may be freed at once, and other things may get those handles: it holds what it needs. Open
   MPI's own persistent collectives do not, and end in a wrong result or a segmentation fault. */
#ifndef OPEN_MPI
static void added(void *in, void *out, int *count, MPI_Datatype *type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((int64_t *)out)[i] += ((int64_t *)in)[i];
}

static void greatest(void *in, void *out, int *count, MPI_Datatype *type) {
  (void)in, (void)type;
  for (int i = 0; i < *count; i++) ((int64_t *)out)[i] = INT64_MAX;
}

static void freed_at_once(void) {
  enum { MADE = 20 };
  MPI_Comm comm;
  MPI_Datatype every_other, pair, others[MADE];
  MPI_Op op, other_ops[MADE];
  MPI_Request gather, sum;
  int64_t two[3], all[3 * 64], mine, total;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Type_vector(2, 1, 2, MPI_INT64_T, &pair);
  MPI_Type_create_resized(pair, 0, 3 * sizeof(int64_t), &every_other);
  MPI_Type_commit(&every_other);
  MPI_Op_create(added, 1, &op);
  MPI_Allgather_init(two, 1, every_other, all, 1, every_other, comm, MPI_INFO_NULL, &gather);
  MPI_Allreduce_init(&mine, &total, 1, MPI_INT64_T, op, comm, MPI_INFO_NULL, &sum);
  MPI_Type_free(&pair), MPI_Type_free(&every_other);
  MPI_Op_free(&op);
  MPI_Comm_free(&comm);
  for (int i = 0; i < MADE; i++) {
    MPI_Type_contiguous(2, MPI_INT8_T, &others[i]), MPI_Type_commit(&others[i]);
    MPI_Op_create(greatest, 1, &other_ops[i]);
  }
  for (int again = 0; again < 6; again++) {
    two[0] = rank + again, two[1] = -5, two[2] = 1000 * rank + again, mine = rank * again, total = -1;
    memset(all, -1, sizeof all);
    MPI_Start(&gather), MPI_Start(&sum);
    MPI_Wait(&sum, MPI_STATUS_IGNORE), MPI_Wait(&gather, MPI_STATUS_IGNORE);
    EXPECT(total == (int64_t)again * size * (size - 1) / 2, "by a freed operation: the sum is %ld", (long)total);
    for (int r = 0; r < size; r++)
      EXPECT(all[3 * r] == r + again && all[3 * r + 1] == -1 && all[3 * r + 2] == 1000 * r + again,
             "of a freed type: block %d is %ld %ld %ld", r, (long)all[3 * r], (long)all[3 * r + 1], (long)all[3 * r + 2]);
    cases++;
  }
  MPI_Request_free(&gather), MPI_Request_free(&sum);
  for (int i = 0; i < MADE; i++) MPI_Type_free(&others[i]), MPI_Op_free(&other_ops[i]);
}
#endif

int main(int argc, char **argv) {
  begin(&argc, &argv);
  int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (int i = 0; i < COUNT; i++) requests[i] = MPI_REQUEST_NULL;
  MPI_Allreduce_init(&sum_in, &sum_out, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[SUM]);
  MPI_Allgather_init(&gather_in, 1, MPI_INT64_T, gather_out, 1, MPI_INT64_T, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[GATHER]);
  /* MPICH and Intel hang in their own waits on a persistent collective that was never started; a plan does not. */
  if (argc > 1 && strcmp(argv[1], "handled") == 0)
    MPI_Allreduce_init(&sum_in, &other_out, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[INACTIVE]);
  else MPI_Send_init(&sum_in, 1, MPI_INT64_T, right, 9, MPI_COMM_WORLD, &requests[INACTIVE]);
  MPI_Status statuses[COUNT], status;
  int flag, index, indices[COUNT], done;
  for (int again = 0; again < 60; again++) {
    start(again, right, left);
    memset(statuses, 0x77, sizeof statuses);
    switch (again % 11) {
    case 0:
      MPI_Waitall(COUNT, requests, statuses);
      check(again, left, "Waitall");
      for (int i = 0; i < COUNT; i++)
        if (i != RECV && i != SEND) is_empty(&statuses[i], "Waitall");
      EXPECT(statuses[RECV].MPI_SOURCE == left, "Waitall: the status of a message");
      break;
    case 1:
      MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
      check(again, left, "Waitall without statuses");
      break;
    case 2:
      for (flag = 0; !flag;) MPI_Testall(COUNT, requests, &flag, statuses);
      check(again, left, "Testall");
      is_empty(&statuses[SUM], "Testall");
      break;
    case 3:
      for (int i = 0, seen[COUNT] = {0}; i < 4; i++) {
        MPI_Waitany(COUNT, requests, &index, &status);
        EXPECT(index >= 0 && index < COUNT && index != INACTIVE && index != NOTHING && !seen[index]++, "Waitany gave %d", index);
      }
      MPI_Waitany(COUNT, requests, &index, &status);
      EXPECT(index == MPI_UNDEFINED, "Waitany gave %d of nothing", index);
      check(again, left, "Waitany");
      break;
    case 4:
      for (int left_over = 4; left_over > 0;) {
        MPI_Testany(COUNT, requests, &index, &flag, &status);
        EXPECT(!flag || index != MPI_UNDEFINED, "Testany gave nothing too soon");
        left_over -= flag;
      }
      MPI_Testany(COUNT, requests, &index, &flag, &status);
      EXPECT(flag && index == MPI_UNDEFINED, "Testany gave %d of nothing", index);
      check(again, left, "Testany");
      break;
    case 5:
      for (int left_over = 4; left_over > 0; left_over -= done) {
        MPI_Waitsome(COUNT, requests, &done, indices, statuses);
        EXPECT(done > 0 && done <= left_over, "Waitsome gave %d", done);
        if (done <= 0) break;
        for (int i = 0; i < done; i++)
          if (indices[i] == SUM || indices[i] == GATHER) is_empty(&statuses[i], "Waitsome");
      }
      MPI_Waitsome(COUNT, requests, &done, indices, statuses);
      EXPECT(done == MPI_UNDEFINED, "Waitsome gave %d of nothing", done);
      check(again, left, "Waitsome");
      break;
    case 6:
      for (int left_over = 4; left_over > 0;) {
        MPI_Testsome(COUNT, requests, &done, indices, MPI_STATUSES_IGNORE);
        EXPECT(done != MPI_UNDEFINED, "Testsome gave nothing too soon");
        left_over -= done;
      }
      MPI_Testsome(COUNT, requests, &done, indices, statuses);
      EXPECT(done == MPI_UNDEFINED, "Testsome gave %d of nothing", done);
      check(again, left, "Testsome");
      break;
    case 7:
      for (int i = 0; i < COUNT; i++)
        for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, &status);
      check(again, left, "Test");
      is_empty(&status, "Test of nothing");
      break;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    case 8:
      /* The functions of MPI 4.1 tell, and change nothing. */
      MPI_Request_get_status_some(COUNT, requests, &done, indices, statuses);
      EXPECT(done != MPI_UNDEFINED, "get_status_some gave nothing too soon");
      for (flag = 0; !flag;) MPI_Request_get_status_all(COUNT, requests, &flag, statuses);
      is_empty(&statuses[SUM], "get_status_all");
      MPI_Request_get_status_some(COUNT, requests, &done, indices, statuses);
      EXPECT(done == 4, "get_status_some gave %d", done);
      MPI_Request_get_status_any(COUNT, requests, &index, &flag, &status);
      EXPECT(flag && index != MPI_UNDEFINED && index != INACTIVE && index != NOTHING, "get_status_any gave %d", index);
      MPI_Waitall(COUNT, requests, statuses);
      check(again, left, "get_status_all");
      break;
    case 10:
#else
    case 8:
#endif
      for (flag = 0; !flag;) MPI_Request_get_status(requests[SUM], &flag, &status);
      is_empty(&status, "Request_get_status");
      /* It only tells: the request is still to be waited for. */
      MPI_Waitany(1, &requests[SUM], &index, &status);
      EXPECT(index == 0, "Waitany after Request_get_status gave %d", index);
      for (int i = COUNT - 1; i >= 0; i--) MPI_Wait(&requests[i], &status);
      is_empty(&status, "Wait of a request that is done");
      check(again, left, "Request_get_status, Wait");
      break;
    default:
      MPI_Wait(&requests[GATHER], MPI_STATUS_IGNORE);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Wait(&requests[SUM], &status);
      is_empty(&status, "Wait");
      MPI_Waitall(2, &requests[RECV], MPI_STATUSES_IGNORE);
      check(again, left, "Wait");
    }
    MPI_Request_get_status(requests[SUM], &flag, &status);
    EXPECT(flag, "an inactive request is not done");
  }
  for (int i = SUM; i <= INACTIVE; i++) {
    MPI_Request_free(&requests[i]);
    EXPECT(requests[i] == MPI_REQUEST_NULL, "a freed request is still there");
  }
  /* Handles are used again. */
  for (int again = 0; again < 300; again++) {
    MPI_Request request;
    int64_t mine = rank, most = -1;
    MPI_Allreduce_init(&mine, &most, 1, MPI_INT64_T, again % 2 ? MPI_MAX : MPI_MIN, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    EXPECT(most == (again % 2 ? size - 1 : 0), "a request made anew: %ld", (long)most);
    MPI_Request_free(&request);
    cases++;
  }
#ifndef OPEN_MPI
  freed_at_once();
#endif
  return finish();
}
