# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

# From a checkout: spack repo add packaging/spack && spack install bruckner

import os

from spack.package import *


class Bruckner(MakefilePackage):
    """Topology-aware MPI collectives for unmodified programs, preloaded under any MPI."""

    # What is built is the checkout that this recipe lies in.
    git = "file://" + os.path.realpath(os.path.join(os.path.dirname(__file__), *[".."] * 4))

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    # The library finds the MPI of a program at run time: it is built without one.
    depends_on("rust@1.95:", type="build")
    depends_on("c", type="build")

    def build(self, spec, prefix):
        make("build")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}", f"LIBDIR={prefix.lib}")
