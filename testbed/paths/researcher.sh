# A researcher: an algorithm as a text, proven, run on an MPI, and measured.
tar -xzf "$TARBALL"
PATH=$PWD/bruckner-$VERSION/bin:$PATH
bruckner explain allreduce --topology 1x2 --bytes 64 --algorithm recursive-doubling > my.bruck
bruckner verify my.bruck
mpicc -O2 "$SOURCE/examples/cg.c" -o app -lm
export BRUCKNER_ALGORITHM='allreduce=file(my.bruck)'
BRUCKNER_REPORT=stderr mpirun -n 2 bruckner exec ./app 2>&1 | grep 'file(my.bruck) *selected by the user'
mpirun -n 2 bruckner bench allreduce --bytes 64 --seconds 1
sed 's/    reduce /    copy /' my.bruck > wrong.bruck
! bruckner verify wrong.bruck
