! Collectives from Fortran, by `mpif.h`: sums, a bcast, in place, a gather.
program fortran_mpif
  implicit none
  include 'mpif.h'
  integer :: rank, ranks, i, code, failures, cases
  integer :: all(0:63)
  double precision :: mine(3), total(3)
  failures = 0
  cases = 0
  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  do i = 1, 20
    mine = (/ 1d0, dble(rank), dble(i) /)
    call MPI_Allreduce(mine, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, code)
    if (total(1) /= ranks .or. total(2) /= ranks * (ranks - 1) / 2 .or. total(3) /= i * ranks) failures = failures + 1
    call MPI_Allreduce(MPI_IN_PLACE, mine, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, code)
    if (mine(2) /= ranks - 1) failures = failures + 1
    call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, code)
    if (all(ranks - 1) /= ranks - 1 .or. all(0) /= 0) failures = failures + 1
    all = rank
    call MPI_Bcast(all, 64, MPI_INTEGER, mod(i, ranks), MPI_COMM_WORLD, code)
    if (all(63) /= mod(i, ranks)) failures = failures + 1
    call MPI_Barrier(MPI_COMM_WORLD, code)
    cases = cases + 5
  end do
  call MPI_Allreduce(MPI_IN_PLACE, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  if (rank == 0) print '(A,I0,A,I0)', 'cases ', cases, ' failures ', failures
  call MPI_Finalize(code)
end program fortran_mpif
