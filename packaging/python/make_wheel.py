"""Makes the wheel: the library, the command, and `bruckner-run`. Needs setuptools 70 or newer."""

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).absolute().parent


class ForAnyPython(bdist_wheel):
    """It is for one kind of machine, and for every Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", self.plat_name


def newest(file):
    """The newest version of the C library that a file needs, as the wheel's tag has it."""
    said = subprocess.run([HERE.parent / "needs", file], check=True, capture_output=True, text=True).stdout
    return tuple(int(number) for number in said.split()[-1].split("."))


def main():
    ask = argparse.ArgumentParser()
    for name in ["version", "stage", "library", "out"]:
        ask.add_argument(f"--{name}", required=True)
    asked = ask.parse_args()
    stage, out = pathlib.Path(asked.stage).absolute(), pathlib.Path(asked.out).absolute()
    needs = max(newest(stage / asked.library), newest(stage / "bruckner"))
    tag = f"manylinux_{needs[0]}_{needs[1]}_{platform.machine()}"
    with tempfile.TemporaryDirectory() as scratch:
        package = pathlib.Path(scratch) / "bruckner"
        shutil.copytree(HERE / "bruckner", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(stage / asked.library, package / "libbruckner.so")
        shutil.copy(stage / "bruckner", package / "bruckner")
        os.chdir(scratch)
        setup(
            name="bruckner",
            version=asked.version,
            description="MPI collectives for machines where near is cheap and far is dear",
            license="MIT OR Apache-2.0",
            python_requires=">=3.8",
            packages=["bruckner"],
            package_data={"bruckner": ["libbruckner.so", "bruckner"]},
            entry_points={
                "console_scripts": ["bruckner = bruckner:main", "bruckner-run = bruckner:run"]
            },
            cmdclass={"bdist_wheel": ForAnyPython},
            script_args=["-q", "bdist_wheel", "--plat-name", tag, "--dist-dir", str(out)],
        )


main()
