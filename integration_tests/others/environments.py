"""Python programs of other people's making have their packages apart from ours, by lock files of their own."""

from __future__ import annotations

import hashlib
import sys
import venv
from pathlib import Path

from integration_tests.brokers import ROOT

from .clients import run


def lock(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.lock"


def packages(name: str, programs: Path) -> Path:
    """Where `python` has them."""
    return _folder(name, programs) / "packages"


def _folder(name: str, programs: Path) -> Path:
    return programs / f"{name}-{hashlib.sha256(lock(name).read_bytes()).hexdigest()[:12]}"


def python(name: str, programs: Path) -> Path:
    """Of an environment with the packages of `requirements/NAME.lock`; made unless it is there."""
    folder = _folder(name, programs)
    site_added = folder / "added"
    made = folder / "venv" / "bin" / "python"
    if site_added.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    target = packages(name, programs)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--upgrade"]
    run([*pip, "--require-hashes", "--no-deps", "--target", target, "--requirement", lock(name)], folder)
    venv.create(folder / "venv", symlinks=True)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    (site / f"{name}.pth").write_text(f"{target}\n")
    site_added.touch()
    return made
