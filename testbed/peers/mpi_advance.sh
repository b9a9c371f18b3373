#!/bin/bash
# Builds MPI Advance (github mpi-advance/locality_aware) with its adapter
# mpi_advance.c into one shared object.
#   mpi_advance.sh SOURCE_DIR OUTPUT.so MPICC [LOCALITY_ALLGATHER [COLLECTIVES]]
# SOURCE_DIR is branch allreduce_impl (f81f9cb).  The optional checkouts of
# branches locality_allgather (0927643) and collectives (72b1e06) add the
# hierarchical allreduces and allgathers, and further allgathers.  DEFAULTS in
# the environment may define ALLREDUCE_DEFAULT, ALLGATHER_DEFAULT and
# ALLTOALL_DEFAULT (all three).
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 SOURCE_DIR OUTPUT.so MPICC [LOCALITY_ALLGATHER [COLLECTIVES]]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$1" && pwd) output=$(realpath -m "$2") mpicc=$3
hierarchical=${4:+$(cd "$4" && pwd)} older=${5:+$(cd "$5" && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The peer's own MPI calls go to PMPI_*, so that they never come back to us.
{ echo '#include <mpi.h>'
  echo '#include <mpi.h>' | $mpicc -E -x c - | grep -oE '\bPMPI_[A-Z][A-Za-z0-9_]*' | sort -u |
    sed -E 's/^P(.*)/#ifndef \1\n#define \1 P\1\n#endif/'
} > pmpi.h

flags="-O3 -fPIC -fvisibility=hidden -include pmpi.h"
compile() { local file=$1; shift; $mpicc $flags -w "$@" -c "$file" -o "$(basename "$file").$((++objects)).peer.o"; }
objects=0
library=$source/library
include="-I$source/include -I$library/include"
for file in "$library"/source/collective/{allreduce,alltoall}/*.c \
            "$library"/source/collective/allgather/allgather_{bruck,ring,pmpi}.c \
            "$library"/source/communicator/{get_tag,topology_functions}.c \
            "$library"/bindings/MPIL_Comm/MPIL_Comm_{init,topo_init,leader_init,leader_free}.c \
            "$library"/bindings/Collective/MPIL_All{reduce,gather,toall}.c \
            "$library"/bindings/global_defaults.c; do
  compile "$file" $include
done
for file in "$library"/bindings/MPIL_Alloc/MPIL_{Alloc,Free}.cpp "$library"/source/utils/utils.cpp; do
  compile "$file" -x c++ -fno-exceptions $include
done

# The older branches have the same communicator under another name.
names="-DMPIX_Comm_topo_init=MPIL_Comm_topo_init -DMPIX_Comm_leader_init=MPIL_Comm_leader_init -DMPIX_Comm_tag=MPIL_Comm_tag"
# (their headers name enums as only C++ may)
printf 'typedef enum AlltoallMethod AlltoallMethod;\ntypedef enum AlltoallvMethod AlltoallvMethod;\n' > enums.h
names+=" -include enums.h"
have=
if [ -n "$hierarchical" ]; then
  have+=" -DHIERARCHICAL"
  compile "$library/bindings/MPIL_Comm/MPIL_Comm_tag.c" $include
  for file in "$hierarchical"/src/collective/{allreduce,allgather}.c; do
    compile "$file" "-I$hierarchical/src" $names
  done
fi
if [ -n "$older" ]; then
  have+=" -DOLDER"
  for file in "$older"/src/collective/{allgather,gather,bcast}.c; do
    compile "$file" "-I$older/src" $names -Dallgather_bruck=older_allgather_bruck -Dallgather_ring=older_allgather_ring
  done
fi
$mpicc -std=c11 -Wall -Wextra -O3 -fPIC -fvisibility=hidden $include $have ${DEFAULTS:-} -c "$here/mpi_advance.c" -o adapter.o
$mpicc -shared -Wl,-z,defs -o "$output" adapter.o ./*.peer.o -lstdc++ -lm
