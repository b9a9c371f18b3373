! Bruckner in a Fortran program, through the C API. Handles become C's by their c2f value where the MPI's Fortran handle
! is that of C (MPICH), and through a small C function elsewhere; see sum_handles.c.
!
!   mpicc -c sum_handles.c && mpifort sum.f90 sum_handles.o -Ltarget/release -lbruckner -o sum
program sum
  use, intrinsic :: iso_c_binding
  use mpi
  implicit none

  interface
    integer(c_int) function bruckner_init() bind(c)
      import :: c_int
    end function
    integer(c_int) function bruckner_finalize() bind(c)
      import :: c_int
    end function
    ! In sum_handles.c: converts the handles and calls bruckner_allreduce.
    integer(c_int) function allreduce_f(send, recv, count, datatype, op, comm) bind(c)
      import :: c_int, c_double
      real(c_double), intent(in) :: send(*)
      real(c_double), intent(out) :: recv(*)
      integer(c_int), value :: count, datatype, op, comm
    end function
  end interface

  integer :: rank, ranks, ierror
  real(c_double) :: mine(2), total(2)

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  if (bruckner_init() /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)

  mine = [rank + 1.0d0, 1.0d0]
  if (allreduce_f(mine, total, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD) /= 0) then
    call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  end if

  if (rank == 0) print '(i0, a, f0.1)', ranks, ' ranks: the sum is ', total(1)
  if (abs(total(1) - ranks * (ranks + 1) / 2.0d0) > 0 .or. nint(total(2)) /= ranks) then
    call MPI_Abort(MPI_COMM_WORLD, 3, ierror)
  end if
  ierror = bruckner_finalize()
  call MPI_Finalize(ierror)
end program
