! Collectives from Fortran, by `use mpi_f08`.
program fortran_f08
  use mpi_f08
  implicit none
  include 'fortran_body.inc'
end program fortran_f08
