/* For sum.f90: Fortran's handles are integers, C's may be addresses. */
#include "bruckner.h"

int allreduce_f(const double *send, double *recv, int count, int datatype, int op, int comm) {
  return bruckner_allreduce(send, recv, count, MPI_Type_f2c(datatype), MPI_Op_f2c(op), MPI_Comm_f2c(comm));
}
