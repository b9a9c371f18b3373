# The Laplacian of a square by conjugate gradients, and by GMRES.
import glob
import sys
sys.path[:0] = glob.glob("/usr/lib/petscdir/petsc*/x86_64-linux-gnu-real/lib/python3/dist-packages")
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc

n = 40
matrix = PETSc.Mat().createAIJ([n * n, n * n], nnz=5)
first, end = matrix.getOwnershipRange()
for row in range(first, end):
    i, j = divmod(row, n)
    matrix[row, row] = 4.0
    for k, l in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
        if 0 <= k < n and 0 <= l < n:
            matrix[row, k * n + l] = -1.0
matrix.assemble()
x, b = matrix.createVecs()
for kind, pc in (("cg", "jacobi"), ("gmres", "bjacobi"), ("bcgs", "asm")):
    b.setArray([1.0 + (row % 7) for row in range(first, end)])
    x.set(0)
    solver = PETSc.KSP().create()
    solver.setOperators(matrix)
    solver.setType(kind)
    solver.getPC().setType(pc)
    solver.setTolerances(rtol=1e-10)
    solver.solve(b, x)
    PETSc.Sys.Print("result %s %d iterations, norm %.9e, largest %.9e" % (kind, solver.getIterationNumber(), x.norm(), x.max()[1]))
