"""Topology-aware MPI collectives, for programs that use mpi4py.

Start programs by ``mpirun -n 4 bruckner-run python app.py``; they need not be changed.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def library():
    """The path of libbruckner.so."""
    return os.path.join(_HERE, "libbruckner.so")


def _command():
    return os.path.join(_HERE, "bruckner")


def main():
    """The ``bruckner`` command."""
    os.execv(_command(), [_command(), *sys.argv[1:]])


def run():
    """``bruckner-run PROGRAM``: ``bruckner exec PROGRAM``."""
    os.execv(_command(), [_command(), "exec", *sys.argv[1:]])
