# A file that all ranks write, collectively, and read again.
import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
with h5py.File("parallel.h5", "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("data", (size * 100, 20), dtype="f8")
    with data.collective:
        data[rank * 100:(rank + 1) * 100] = numpy.arange(2000.0).reshape(100, 20) + 10000 * rank
    file.attrs["ranks"] = size
with h5py.File("parallel.h5", "r", driver="mpio", comm=comm) as file:
    data = file["data"]
    with data.collective:
        part = data[(size - 1 - rank) * 100:(size - rank) * 100]
    total = comm.allreduce(float(part.sum()))
    if rank == 0:
        print("result sum %.1f, last %.1f, %d ranks" % (total, data[size * 100 - 1, 19], file.attrs["ranks"]))
