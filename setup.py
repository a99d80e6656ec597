"""Adds the compiled modules to the build. All else is in pyproject.toml.

The extensions are optional: without a working C compiler the build prints a warning for each, and the same files run
as plain Python. `isthmus --version` says which form runs.
"""

import os
import runpy
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "_clock",
    "protocol/_batch_header",
    "protocol/_columns",
    "protocol/_records",
    "protocol/_writing",
    "protocol/_compaction",
    "protocol/_walk",
    "client/_murmur2",
    "core_broker/storage/disk/_data_file",
    "core_broker/storage/log/_indexes",
    "core_broker/storage/log/_limits",
    "core_broker/storage/log/_producers",
    "core_broker/storage/log/_segment",
    "core_broker/storage/log/_batch_check",
    "core_broker/storage/log/_tail",
    "core_broker/storage/log/_ranges",
    "core_broker/replication/_core",
    "core_broker/server/_context",
    "core_broker/server/_route",
    "core_broker/server/_frames",
    "core_broker/server/_produce",
    "core_broker/server/_wanted",
    "core_broker/server/_fetch",
    "core_broker/server/_sending",
)

OPTIMIZED = [] if os.environ.get("CFLAGS") else ["-O3"]  # whoever gives flags decides
SOURCE = Path(__file__).parent / "src"
# By its path, since the package cannot be imported where it is built.
runpy.run_path(str(SOURCE / "isthmus/compiled.py"))["write"](SOURCE, [f"isthmus/{name}" for name in MODULES])

extensions = cythonize(
    [
        Extension(f"isthmus.{name.replace('/', '.')}", [f"src/isthmus/{name}.py"], extra_compile_args=OPTIMIZED)
        for name in MODULES
    ],
    build_dir="build/cython",
    language_level=3,
    quiet=True,
)
for extension in extensions:
    extension.optional = True  # cythonize drops what the Extension above would say

setup(ext_modules=extensions)
