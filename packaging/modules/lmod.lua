local prefix = myFileName():match("^(.*)/share/modulefiles/bruckner/[^/]*$")

whatis("Bruckner @VERSION@: Topology-aware MPI collectives for unmodified programs")
help([[Start programs by `mpirun -n 4 bruckner exec ./app`, with the MPI that you use anyway.
Is it worth it? `bruckner compare -- mpirun -n 4 ./app`]])
conflict("bruckner")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("CPATH", pathJoin(prefix, "include"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
setenv("BRUCKNER_ROOT", prefix)
