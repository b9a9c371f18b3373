"""Makes the wheel: the library, the command, and `bruckner-run`. Needs nothing but Python; the same files give the same wheel."""

import argparse
import base64
import hashlib
import pathlib
import platform
import subprocess
import zipfile

HERE = pathlib.Path(__file__).absolute().parent
METADATA = """Metadata-Version: 2.1
Name: bruckner
Version: {version}
Summary: Topology-aware MPI collectives for unmodified programs
License: MIT OR Apache-2.0
Requires-Python: >=3.8
"""
WHEEL = """Wheel-Version: 1.0
Generator: bruckner
Root-Is-Purelib: false
Tag: {tag}
"""
SCRIPTS = """[console_scripts]
bruckner = bruckner:main
bruckner-run = bruckner:run
"""


def newest(file):
    """The newest version of the C library that a file needs, as the wheel's tag has it."""
    said = subprocess.run([HERE.parent / "needs", file], check=True, capture_output=True, text=True).stdout
    return tuple(int(number) for number in said.split()[-1].split("."))


def digest(data):
    """What the wheel's record says of a file."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def main():
    ask = argparse.ArgumentParser()
    for name in ["version", "stage", "library", "out"]:
        ask.add_argument(f"--{name}", required=True, type=str if name in ["version", "library"] else pathlib.Path)
    asked = ask.parse_args()
    library, command = asked.stage / asked.library, asked.stage / "bruckner"
    needs = max(newest(library), newest(command))
    tag = f"py3-none-manylinux_{needs[0]}_{needs[1]}_{platform.machine()}"
    about = f"bruckner-{asked.version}.dist-info"
    files = {
        "bruckner/__init__.py": (HERE / "bruckner/__init__.py").read_bytes(),
        "bruckner/libbruckner.so": library.read_bytes(),
        "bruckner/bruckner": command.read_bytes(),
        f"{about}/METADATA": METADATA.format(version=asked.version).encode(),
        f"{about}/WHEEL": WHEEL.format(tag=tag).encode(),
        f"{about}/entry_points.txt": SCRIPTS.encode(),
    }
    record = [f"{name},{digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{about}/RECORD"] = ("".join(record) + f"{about}/RECORD,,\n").encode()
    wheel = asked.out / f"bruckner-{asked.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if data[:4] == b"\x7fELF" else 0o100644) << 16
            packed.writestr(entry, data)
    print(wheel)


main()
