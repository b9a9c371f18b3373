! Collectives from Fortran, by `use mpi`.
program fortran_mpi
  use mpi
  implicit none
  include 'fortran_body.inc'
end program fortran_mpi
