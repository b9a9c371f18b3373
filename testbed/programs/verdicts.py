"""verdicts.py FILE TESTS…: runs mpi4py's tests, with the arguments of its main.py, and writes the verdict of each to FILE.RANK."""

import json
import sys
import unittest

file, tests = sys.argv[1:3]
sys.path.insert(0, tests)
sys.argv = ["main.py", *sys.argv[3:]]
verdicts = {}


class Recorder(unittest.TextTestResult):
    def startTest(self, test):
        verdicts[test.id()] = "ok"
        super().startTest(test)

    def addFailure(self, test, err):
        verdicts[test.id()] = "failed"
        super().addFailure(test, err)

    def addError(self, test, err):
        verdicts[test.id()] = "error"
        super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            verdicts[test.id()] = "failed"
        super().addSubTest(test, subtest, err)

    def addSkip(self, test, reason):
        verdicts[test.id()] = "skipped"
        super().addSkip(test, reason)


unittest.TextTestRunner.resultclass = Recorder

import main  # noqa: E402

try:
    main.TestProgram(module=None)
except SystemExit:
    pass

from mpi4py import MPI  # noqa: E402

with open(f"{file}.{MPI.COMM_WORLD.rank}", "w") as out:
    json.dump(verdicts, out)
