/* A program that never calls MPI_Init: its communicators come from a session, and all calls are passed through to the MPI. */
#include "plain.h"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

int main(void) {
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "bruckner", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&group);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  int64_t mine = rank, sum = -1, all[64], root = rank == 0 ? 77 : -1;
  for (int again = 0; again < 20; again++) {
    MPI_Request request, gather;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, comm);
    EXPECT(sum == (int64_t)size * (size - 1) / 2, "the sum is %ld", (long)sum);
    MPI_Bcast(&root, 1, MPI_INT64_T, 0, comm);
    EXPECT(root == 77, "the root has %ld", (long)root);
    MPI_Barrier(comm);
    MPI_Ibarrier(comm, &request);
    int flag = 0;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    while (!flag) MPI_Request_get_status_all(1, &request, &flag, MPI_STATUSES_IGNORE);
#else
    while (!flag) MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
#endif
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allgather_init(&mine, 1, MPI_INT64_T, all, 1, MPI_INT64_T, comm, MPI_INFO_NULL, &gather);
    memset(all, -1, sizeof all);
    MPI_Start(&gather);
    MPI_Waitall(1, &gather, MPI_STATUSES_IGNORE);
    for (int r = 0; r < size; r++) EXPECT(all[r] == r, "block %d is %ld", r, (long)all[r]);
    MPI_Request_free(&gather);
    cases++;
  }
  long all_failed = failures;
  MPI_Allreduce(MPI_IN_PLACE, &all_failed, 1, MPI_LONG, MPI_SUM, comm);
  if (rank == 0) printf("cases %ld failures %ld\n", (long)cases, all_failed);
  MPI_Comm_free(&comm);
  MPI_Session_finalize(&session);
  return all_failed != 0;
}
