"""What `docker build` is given: the Dockerfile, the project's source, and the wheels that its lock files name.

The wheels are fetched here, on the host, for the image's Python and checked by hash, so that the build itself needs no
network. The source is that of the running package, a checkout's or an installed wheel's: both hold what builds it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ..engine import EngineError, last_line

HERE = Path(__file__).parent
PACKAGES = ("isthmus", "pyspark_isthmus")
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.pxd", ".*")
PYTHON = "3.11"  # what requirements/image*.lock were resolved for
GLIBC_MINORS = range(5, 37)  # Debian 12 has 2.36: wheels for it and for older ones
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}  # Docker's name, and wheels'
DOWNLOAD_TIMEOUT_S = 1_200.0

Say = Callable[[str], None]


def assemble(folder: Path, arch: str, spark: bool, say: Say) -> str:
    """Fill the empty `folder`; gives the digest of the source. Raises EngineError."""
    digest = copy_source(folder)
    (folder / "wheels").mkdir()
    for lock in ("build.lock", "image.lock"):
        _link(fetched(lock, arch, say), folder / "wheels")
    if spark:
        (folder / "spark-wheels").mkdir()
        _link(fetched("image-spark.lock", arch, say), folder / "spark-wheels")
    return digest


def copy_source(folder: Path) -> str:
    """All of the context but the wheels, which the lock files in it name by hash; gives the digest of it."""
    shutil.copy(HERE / "Dockerfile", folder)
    for name in ("requirements", "source"):
        shutil.copytree(HERE / name, folder / name, ignore=NOT_SOURCE)
    for name in PACKAGES:
        shutil.copytree(_package(name), folder / "source/src" / name, ignore=NOT_SOURCE)
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in (str(path.relative_to(folder)).encode(), path.read_bytes()):
            found.update(len(part).to_bytes(8) + part)
    return found.hexdigest()


def fetched(lock: str, arch: str, say: Say) -> Path:
    """The cached folder with every file that a lock file names, fetched by pip if it is not there yet."""
    text = (HERE / "requirements" / lock).read_bytes()
    count = sum(b"==" in line for line in text.splitlines())
    folder = cache() / "wheels" / f"{Path(lock).stem}-{arch}-{hashlib.sha256(text).hexdigest()[:16]}"
    if folder.exists():
        say(f"{count} packages of {lock}: kept from before")
        return folder
    say(f"{count} packages of {lock}: fetching them")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_suffix(f".{os.getpid()}")
    command = (
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes"),
        *("--no-deps", "--no-build-isolation", "--only-binary", ":all:", "--no-binary", "pyspark"),
        *("--python-version", PYTHON, "--implementation", "cp", "--abi", f"cp{PYTHON.replace('.', '')}"),
        *("--abi", "abi3", "--abi", "none", *_platforms(arch)),
        *("--dest", str(fresh), "-r", str(HERE / "requirements" / lock)),
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
        if "No module named pip" in done.stderr:
            raise EngineError(f"{sys.executable} has no pip, which fetches the image's packages: install it there")
        if done.returncode:
            raise EngineError(
                f"pip cannot fetch the packages of {lock}: {_error(done.stderr)} "
                "(is the registry that `pip config list` names reachable?)"
            )
        fresh.rename(folder)
    except subprocess.TimeoutExpired:
        raise EngineError(f"the packages of {lock} were not there after {DOWNLOAD_TIMEOUT_S:.0f} s") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def cache() -> Path:
    """Where downloads are kept between builds."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus"


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found and found.origin
    return Path(found.origin).parent


def _platforms(arch: str) -> Iterator[str]:
    try:
        machine = ARCHITECTURES[arch]
    except KeyError:
        raise EngineError(f"the engine runs on {arch}; images are built for {' and '.join(ARCHITECTURES)}") from None
    old = ("manylinux2014", "manylinux2010", "manylinux1") if machine == "x86_64" else ("manylinux2014",)
    for name in (*(f"manylinux_2_{minor}" for minor in reversed(GLIBC_MINORS)), *old):
        yield from ("--platform", f"{name}_{machine}")


def _link(folder: Path, to: Path) -> None:
    """The files of a folder, without copying their bytes where the file system allows."""
    for path in folder.iterdir():
        if not (to / path.name).exists():
            try:
                os.link(path, to / path.name)
            except OSError:
                shutil.copy(path, to)


def _error(said: str) -> str:
    """pip's own words for what went wrong."""
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    return errors[0] if errors else last_line(said)
