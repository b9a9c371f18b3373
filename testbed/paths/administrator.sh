# First steps of an administrator: install the library, change settings, show them, and uninstall without leftovers.
make -s -C "$SOURCE" install PREFIX="$PWD/opt" >/dev/null
# Tcl modules, or else Lmod.
test ! -e /usr/share/modules/init/sh || . /usr/share/modules/init/sh
test -e /usr/share/modules/init/sh || . /usr/share/lmod/lmod/init/sh
module use "$PWD/opt/share/modulefiles"
module load bruckner
test "$(command -v bruckner)" = "$PWD/opt/bin/bruckner"
MANPATH="$PWD/opt/share/man" man -w bruckner-compare >/dev/null
printf 'BRUCKNER_MEMORY = 32M\n' > site.conf && chmod 600 site.conf
BRUCKNER_CONFIG=$PWD/site.conf bruckner settings | grep 'BRUCKNER_MEMORY .*32M .*site.conf, line 1'
mpicc "$SOURCE/examples/sum.c" $(pkg-config --cflags --libs bruckner) -o sum
mpirun -n 2 ./sum
mpirun -n 2 bruckner doctor
make -s -C "$SOURCE" uninstall PREFIX="$PWD/opt"
test ! -e "$PWD/opt"
