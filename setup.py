"""Adds the compiled module to the build. All else is in pyproject.toml.

The extension is optional: without a working C compiler the build prints one warning, and the same file,
`protocol/_records.py`, runs as plain Python. `isthmus --version` says which of the two forms runs.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCE = "src/isthmus/protocol/_records.py"

extensions = cythonize(
    [Extension("isthmus.protocol._records", [SOURCE], extra_compile_args=["-O3"])],
    build_dir="build/cython",
    language_level=3,
    quiet=True,
)
for extension in extensions:
    extension.optional = True  # cythonize drops what the Extension above would say

setup(ext_modules=extensions)
