# First steps of a user with an MPI program: from a tarball to a comparison with and without the library.
tar -xzf "$TARBALL"
PATH=$PWD/bruckner-$VERSION/bin:$PATH
mpicc -O2 "$SOURCE/examples/cg.c" -o app -lm
mpirun -n 2 bruckner doctor ./app
BRUCKNER_REPORT=run-%j.json mpirun -n 2 bruckner exec ./app
bruckner report run-nojob.json
# Whatever the answer is: so short a run says little.
bruckner compare --launches 7 -- mpirun -n 2 ./app || test $? = 1
