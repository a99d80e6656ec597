"""What is built from a checkout: which names a wheel claims, and that a failing compiler costs warnings only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"isthmus", "pyspark_isthmus"}
NOT_SOURCES = shutil.ignore_patterns(
    ".venv", ".git", ".isthmus", "build", "*.egg-info", "*.so", "*.pxd", "__pycache__", ".*_cache", ".hypothesis"
)
COMPILED = re.findall(r'^    "((?:.*/)?_[a-z0-9_]*)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
FAST_TO_BUILD = "-O0"  # how fast what was built runs does not matter here
USE = """
import asyncio, tempfile
import isthmus.protocol._records as compiled_or_not
from isthmus.protocol import compaction, records
assert compaction.COMPILED == records.COMPILED
batch = records.build_batch([(1, b"key", b"value", ())], codec="lz4")
[record] = records.decode_batch(batch)
assert (record.timestamp_ms, bytes(record.key), bytes(record.value)) == (1, b"key", b"value")
from isthmus.core_broker.server._produce import COMPILED
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.core_broker.storage.log.log import Origin
from isthmus.core_broker.storage.disk.real_files import RealFiles
assert COMPILED == records.COMPILED
with tempfile.TemporaryDirectory() as folder:
    log = asyncio.run(open_log(RealFiles(), f"{folder}/t-0"))
    for number in range(3):
        assert log.append(batch, Origin.CLIENT, 0, 1).first_offset == number
print(compiled_or_not.__file__)
"""
CONTEXT = """
import pathlib, sys
from isthmus.deploy.image.context import copy_source
copy_source(pathlib.Path(sys.argv[1]))
"""


def checkout(folder: Path) -> Path:
    """A copy of the work tree without what was built, so that a build leaves no trace in it."""
    return Path(shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=NOT_SOURCES))


def build_wheel(folder: Path, **environment: str) -> tuple[Path, str]:
    """The wheel and all that the build said."""
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", str(folder), "."]
    done = subprocess.run(
        command, cwd=checkout(folder), env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [wheel] = folder.glob("*.whl")
    return wheel, done.stdout + done.stderr


def claimed(wheel: Path) -> set[str]:
    """The top-level names that a wheel would put on the import path."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith((".dist-info", ".data"))}


def use(wheel: Path, folder: Path) -> str:
    """Round a record through the installed wheel; the file that its loops were loaded from."""
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    environment = {**os.environ, "PYTHONPATH": str(folder / "installed")}
    command = [sys.executable, "-c", USE]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    where = done.stdout.strip()
    assert Path(where).is_relative_to(folder / "installed")
    return where


def modules_that_failed(said: str) -> list[str]:
    return sorted(re.findall(r'warning: build_ext: building extension "isthmus\.([.\w]+)" failed', said))


def context_of(path: Path, folder: Path) -> dict[str, bytes]:
    """The files that `isthmus image build` gives to Docker when the package is imported from `path`, but the wheels."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(path)}
    subprocess.run([sys.executable, "-c", CONTEXT, str(folder)], cwd=folder.parent, env=environment, check=True)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_wheel_claims_our_names_only_and_holds_the_compiled_modules(tmp_path: Path) -> None:
    if not shutil.which("cc") and not shutil.which("gcc"):
        pytest.skip("no C compiler on this machine")
    wheel, said = build_wheel(tmp_path, CFLAGS=FAST_TO_BUILD)
    assert claimed(wheel) == OURS
    names = zipfile.ZipFile(wheel).namelist()
    assert {"isthmus/py.typed", "isthmus/protocol/_records.py", "isthmus/core_broker/__init__.py"} <= set(names)
    assert {"isthmus/testing/plugin.py", "isthmus/testing/keeper/__main__.py"} <= set(names)
    assert not [name for name in names if "test" in name.partition("/")[0]]
    assert not [name for name in names if name.endswith((".pxd", ".c"))]
    assert modules_that_failed(said) == []
    assert use(wheel, tmp_path).endswith(".so")


def test_an_installed_wheel_builds_the_image_as_the_checkout_does(tmp_path: Path) -> None:
    wheel, _ = build_wheel(tmp_path, CC="/bin/false")
    use(wheel, tmp_path)
    installed = context_of(tmp_path / "installed", tmp_path / "of-wheel")
    ours = context_of(ROOT / "src", tmp_path / "of-checkout")
    assert [name for name in installed if installed[name] != ours.get(name)] == []
    # What is in no package, as the examples of tests are not, is of no use in an image.
    assert {name.split("/")[3] for name in ours.keys() - installed.keys()} <= {"examples"}


def test_a_failing_compiler_costs_a_warning_a_module_and_the_plain_form_works(tmp_path: Path) -> None:
    wheel, said = build_wheel(tmp_path, CC="/bin/false")
    assert modules_that_failed(said) == sorted(name.replace("/", ".") for name in COMPILED)
    assert len(COMPILED) == 24
    assert claimed(wheel) == OURS
    assert use(wheel, tmp_path).endswith("_records.py")


def test_control_a_foreign_name_in_a_wheel_would_be_seen(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("isthmus/__init__.py", "streams/__init__.py", "isthmus-1.dist-info/RECORD"):
            file.writestr(name, "")
    assert claimed(wheel) == {"isthmus", "streams"}
