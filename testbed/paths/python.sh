# First steps of a user with mpi4py: install a wheel and run an unmodified program.
python3 -m venv --system-site-packages env
env/bin/pip install --quiet --no-index "$WHEEL"
BRUCKNER_REPORT=run.json mpirun -n 2 env/bin/bruckner-run python3 "$SOURCE/examples/means.py"
env/bin/bruckner report run.json
env/bin/bruckner report --json run.json | grep '"handled": [1-9]'
env/bin/pip uninstall --quiet --yes bruckner
test ! -e env/bin/bruckner-run
