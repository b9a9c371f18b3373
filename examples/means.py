"""The mean and the spread of data that ranks share, with mpi4py.

    mpirun -n 4 bruckner exec python3 examples/means.py
"""

import sys
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def total(value):
    """The sum over all ranks."""
    result = array("d", [0.0])
    world.Allreduce(array("d", [value]), result)
    return result[0]


mine = [float((rank * 1000 + at) % 97) for at in range(1000)]
for _ in range(200):
    count = total(len(mine))
    mean = total(sum(mine)) / count
    spread = total(sum((value - mean) ** 2 for value in mine)) / count
means = array("d", [0.0] * size)
world.Allgather(array("d", [sum(mine) / len(mine)]), means)
right = count == 1000 * size and abs(sum(means) / size - mean) < 1e-9
if rank == 0:
    print(f"{size} ranks: the mean is {mean:.3f}, the spread {spread:.3f}")
sys.exit(0 if right else 1)
