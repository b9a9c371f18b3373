"""Makes the wheel: the library, the command, and `bruckner-run`. Needs setuptools 70 or newer."""

import argparse
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup

HERE = pathlib.Path(__file__).parent


class Binary(Distribution):
    """It has files for one kind of machine."""

    def has_ext_modules(self):
        return True


def newest(file):
    """The newest version of the C library that a file needs, as the wheel's tag has it."""
    said = subprocess.run([HERE.parent / "needs", file], check=True, capture_output=True, text=True).stdout
    return tuple(int(number) for number in said.split()[-1].split("."))


def main():
    ask = argparse.ArgumentParser()
    for name in ["version", "stage", "library", "out"]:
        ask.add_argument(f"--{name}", required=True)
    asked = ask.parse_args()
    stage, out = pathlib.Path(asked.stage), pathlib.Path(asked.out).absolute()
    needs = max(newest(stage / asked.library), newest(stage / "bruckner"))
    tag = f"manylinux_{needs[0]}_{needs[1]}_{platform.machine()}"
    with tempfile.TemporaryDirectory() as scratch:
        package = pathlib.Path(scratch) / "bruckner"
        shutil.copytree(HERE / "bruckner", package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(stage / asked.library, package / "libbruckner.so")
        shutil.copy(stage / "bruckner", package / "bruckner")
        sys.argv = ["setup.py", "-q", "bdist_wheel", "--python-tag", "py3", "--plat-name", tag,
                    "--bdist-dir", f"{scratch}/bdist", "--dist-dir", str(out)]
        setup(
            name="bruckner",
            version=asked.version,
            description="MPI collectives for machines where near is cheap and far is dear",
            license="MIT OR Apache-2.0",
            python_requires=">=3.8",
            packages=["bruckner"],
            package_dir={"bruckner": str(package)},
            package_data={"bruckner": ["libbruckner.so", "bruckner"]},
            entry_points={
                "console_scripts": ["bruckner = bruckner:main", "bruckner-run = bruckner:run"]
            },
            distclass=Binary,
            script_args=sys.argv[1:],
        )


main()
