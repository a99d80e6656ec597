"""The lock files: every requirement pinned and hashed, no registry named."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MADE_UP = "://".join(("https", "x"))  # no tracked file holds an address of packages, this one neither
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def faults(lock: str) -> list[str]:
    """What is wrong with the text of a lock file."""
    found = [line for line in lock.splitlines() if re.search(r"://|^\s*-{1,2}(index|extra|find|trusted)", line)]
    for requirement in re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", lock)):
        if requirement.strip() and not re.match(
            r"[a-z0-9.-]+==\S+ (;[^\\]+)?\\\n +--hash=sha256:[0-9a-f]{64}", requirement
        ):
            found.append(requirement.splitlines()[0])
    return found


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed_and_no_registry_is_named(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_there_are_locks() -> None:
    assert {path.name for path in LOCKS} == {
        "build.lock", "bytewax.lock", "dev.lock", "faust.lock", "image.lock", "image-spark.lock", "quix.lock",
        "suites.lock"
    }  # fmt: skip


@pytest.mark.parametrize(
    "lock",
    [
        "rich==1.0\n",
        "rich>=1 \\\n    --hash=sha256:" + "0" * 64,
        f"--index-url {MADE_UP}\n",
        f"rich @ {MADE_UP}/y.whl\n",
    ],
)
def test_control_a_loose_requirement_is_found(lock: str) -> None:
    assert faults(lock)


def test_every_direct_dependency_is_explained() -> None:
    """In docs/explanation/dependencies.md: what it is for, and its licence."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[\[<>=,; ]", each)[0] for each in itertools.chain(*lists)} - {"isthmus"}
    page = (ROOT / "docs/explanation/dependencies.md").read_text()
    assert [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", page)] == []
