! Heat that spreads along a rod, in Fortran with mpi_f08: whether it still changes is found by MPI_Allreduce.
!
!   mpifort -O2 examples/heat.f90 -o heat
!   mpirun -n 4 bruckner exec ./heat
program heat
  use mpi_f08
  implicit none
  integer, parameter :: points = 64, wide = selected_real_kind(12)
  integer :: rank, size, left, right, steps, at
  real(wide) :: rod(0:points + 1), next(points), change, greatest

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
  right = merge(rank + 1, MPI_PROC_NULL, rank < size - 1)
  rod = 0
  ! One end is hot, and the other cold.
  if (rank == 0) rod(0) = 1
  do steps = 1, 2000
    call MPI_Sendrecv(rod(points), 1, MPI_DOUBLE_PRECISION, right, 0, rod(0), 1, MPI_DOUBLE_PRECISION, left, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(rod(1), 1, MPI_DOUBLE_PRECISION, left, 1, rod(points + 1), 1, MPI_DOUBLE_PRECISION, right, 1, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    do at = 1, points
      next(at) = (rod(at - 1) + rod(at + 1)) / 2
    end do
    change = maxval(abs(next - rod(1:points)))
    rod(1:points) = next
    call MPI_Allreduce(change, greatest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
    if (greatest < 3e-4_wide) exit
  end do
  if (rank == 0) print '(i0, a, i0, a, f8.6)', size, ' ranks: ', steps, ' steps, the last change is ', greatest
  call MPI_Finalize()
end program
