#!/bin/bash
# Builds ext_mpi_collectives (github eth-cscs/ext_mpi_collectives, commit
# 5be20d8) with its adapter ext_mpi.c into one shared object.
#   ext_mpi.sh SOURCE_DIR OUTPUT.so MPICC
set -euo pipefail
[ $# = 3 ] || { echo "usage: $0 SOURCE_DIR OUTPUT.so MPICC" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$1" && pwd) output=$(realpath -m "$2") mpicc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source"/{include,src,latency_bandwidth,minclude.sh} "$work"
cd "$work"

# The peer's own MPI calls go to PMPI_*, so that they never come back to us.
{ echo '#include <mpi.h>'
  echo '#include <mpi.h>' | $mpicc -E -x c - | grep -oE '\bPMPI_[A-Z][A-Za-z0-9_]*' | sort -u |
    sed -E 's/^P(.*)/#ifndef \1\n#define \1 P\1\n#endif/'
} > pmpi.h

# Ranks may outnumber cores: yield in the spin loops.
sed -i -e '/> INT_MAX)$/{n;s/;/sched_yield();/}' -e '1i #include <sched.h>' src/mpi/ext_mpi_native_exec.c
[ "$(grep -c 'sched_yield();' src/mpi/ext_mpi_native_exec.c)" = 3 ] || { echo "$0: other source than expected" >&2; exit 1; }
# On one node a misplaced parenthesis writes through a stray pointer.
sed -i -e 's/(\*groups\[0\])/(*groups)[0]/' -e 's/(\*groups\[1\])/(*groups)[1]/' src/mpi/num_ports_factors.c
# Segments go as soon as their last user does, also after a crash.
sed -i '0,/memset((void \*)((\*shmem)\[ii\]/s//if (!single_task) shmctl((*shmemid)[ii], IPC_RMID, NULL);\n      &/' src/mpi/shmem.c
grep -q 'if (!single_task) shmctl' src/mpi/shmem.c || { echo "$0: other source than expected" >&2; exit 1; }

bash minclude.sh latency_bandwidth/ext_mpi_bm.txt > latency_bandwidth.tmp
flags="-O3 -fPIC -fvisibility=hidden -I. -Iinclude/core -Iinclude/mpi"
for file in src/core/*.c src/mpi/*.c src/noopt/*.c; do
  case $file in
    src/mpi/ext_mpi_interface.c) continue ;;      # defines MPI_* functions itself
    src/noopt/*) level=-O0 ;;
    *) level= ;;
  esac
  $mpicc $flags -w $level -include pmpi.h -c "$file" -o "$(basename "$file" .c).peer.o"
done
$mpicc -std=c11 -Wall -Wextra $flags -c "$here/ext_mpi.c" -o adapter.o
$mpicc -shared -Wl,-z,defs -o "$output" adapter.o ./*.peer.o -lm -lrt
