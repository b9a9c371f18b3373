! Collectives from Fortran, by `mpif.h`.
program fortran_mpif
  implicit none
  include 'mpif.h'
  include 'fortran_body.inc'
end program fortran_mpif
