# slurm.sh SOURCE: starts a Slurm on this machine alone, in the current directory, and runs programs under srun, with the library and
# without.
source=$1
here=$PWD
bruckner=$source/target/release/bruckner
host=$(hostname -s)
export SLURM_CONF=$here/slurm.conf
cat > slurm.conf <<CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$here/munge.socket
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
CONF
mkdir state spool
chmod 755 "$here"
(umask 077; head -c 1024 /dev/urandom > munge.key)
down() {
  for daemon in slurmd slurmctld munge; do
    if [ -s "$here/$daemon.pid" ]; then kill "$(cat "$here/$daemon.pid")" 2>/dev/null || true; fi
  done
  sleep 1
}
trap down EXIT
munged --force --key-file="$here/munge.key" --socket="$here/munge.socket" --pid-file="$here/munge.pid" \
  --log-file="$here/munge.log" --seed-file="$here/munge.seed"
slurmctld -f slurm.conf
slurmd -f slurm.conf
for _ in 1 2 3 4 5 6 7 8 9 10; do
  sinfo -h -o %T | grep -q idle && break
  sleep 1
done

# run WHAT PMI PROGRAM…: what two tasks say.
run() { what=$1 pmi=$2; shift 2; said=$(timeout 120 srun -Q --mpi="$pmi" -n 2 "$@" 2>&1) || { echo "$what: $said"; exit 1; }; }
# expect WHAT TEXT: whether they say it.
expect() { case $said in *"$2"*) echo "$1: $2" ;; *) echo "$1: not \`$2\`:"; echo "$said"; exit 1 ;; esac; }

for pair in openmpi:pmix mpich:pmi2; do
  mpi=${pair%:*} pmi=${pair#*:}
  name="srun --mpi=$pmi, $mpi"
  "mpicc.$mpi" -O2 "$source/examples/cg.c" -o "cg-$mpi" -lm
  run "$name" "$pmi" "./cg-$mpi"
  plain=$said
  expect "$name, without" '0 differences between ranks'
  run "$name" "$pmi" "$bruckner" doctor
  expect "$name, doctor" 'no problems found'
  expect "$name, doctor" 'ranks          2'
  export BRUCKNER_REPORT="$here/$mpi-%j.json"
  run "$name" "$pmi" "$bruckner" exec "./cg-$mpi"
  expect "$name, bruckner exec" '0 differences between ranks'
  export LD_PRELOAD="$source/target/release/libbruckner.so"
  run "$name" "$pmi" "./cg-$mpi"
  unset LD_PRELOAD BRUCKNER_REPORT
  expect "$name, LD_PRELOAD" '0 differences between ranks'
  set -- "$mpi"-*.json
  [ $# = 2 ] || { echo "$name: reports of two jobs, not $*"; exit 1; }
  said=$("$bruckner" report "$@")
  expect "$name, reports of two jobs" 'calls handled'
done
