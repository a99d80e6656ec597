"""`python -m tests.mutants [KIND or NAME...]`: plants each bug in a copy of the checkout and runs its tests.

A kind is a module of this package with a tuple MUTANTS. A mutant replaces one text, which stands exactly once in its
file, by another. It is caught when its tests fail. The same tests run without any bug first: a test that is red
anyway catches nothing. Prints a table; the exit status is 0 if every mutant is caught.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import tests.mutants as package

from . import Mutant

ROOT = Path(__file__).resolve().parents[2]
TESTS_LIMIT_S = 600.0  # of the tests of one mutant; one that never ends counts as caught
FAILED = 1  # pytest's exit status when tests ran and some failed
OTHER_BINARIES = (".so",)  # compiled modules, which git does not list


def kinds() -> dict[str, tuple[Mutant, ...]]:
    """The mutants of each module of this package, by the module's name."""
    names = sorted(each.name for each in pkgutil.iter_modules(package.__path__) if not each.name.startswith("_"))
    modules = {name: import_module(f"{package.__name__}.{name}") for name in names}
    return {name: module.MUTANTS for name, module in modules.items() if hasattr(module, "MUTANTS")}


def problems(mutants: Iterable[Mutant]) -> Iterator[str]:
    """What keeps mutants from being planted: a text that does not stand exactly once, a test file that is gone."""
    for mutant in mutants:
        count = (ROOT / mutant.file).read_text().count(mutant.old)
        if count != 1:
            yield f"{mutant.name}: its text stands {count} times in {mutant.file}"
        for test in mutant.tests:
            if not (ROOT / test.partition("::")[0]).exists():
                yield f"{mutant.name}: {test} is not there"


def copy_checkout(folder: Path) -> None:
    """What git tracks or would track, links as links, and the compiled modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    names = [name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)]
    rooms = {name.partition("/")[0] for name in names if "/" in name}
    names += [
        str(path.relative_to(ROOT))
        for room in sorted(rooms)
        for suffix in OTHER_BINARIES
        for path in (ROOT / room).rglob(f"*{suffix}")
        if not path.is_symlink() and path.is_file()
    ]
    packed = subprocess.Popen(["tar", "cf", "-", "-T", "-"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unpacked = subprocess.Popen(["tar", "xf", "-", "-C", str(folder)], stdin=packed.stdout)
    assert packed.stdin is not None
    packed.stdin.write("\n".join(names).encode())
    packed.stdin.close()
    if packed.wait() or unpacked.wait():
        raise RuntimeError("the checkout cannot be copied")


@contextmanager
def planted(mutant: Mutant, folder: Path) -> Iterator[None]:
    path = folder / mutant.file
    right = path.read_text()
    path.write_text(right.replace(mutant.old, mutant.new))
    try:
        yield
    finally:
        path.write_text(right)


def outcome(tests: Iterable[str], folder: Path) -> int | None:
    """Exit status of pytest; None when it did not end in time."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    # Subprocesses of the tests import the copy, too: PYTHONPATH comes before the editable install.
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=TESTS_LIMIT_S
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("wanted", nargs="*", help="kinds, or names of mutants (default: all)")
    wanted = parser.parse_args().wanted
    known = kinds()
    chosen = [
        (kind, mutant)
        for kind, mutants in known.items()
        for mutant in mutants
        if not wanted or kind in wanted or mutant.name in wanted
    ]
    if not chosen:
        print(f"mutants: none of {', '.join(wanted)}; kinds: {', '.join(known)}", file=sys.stderr)
        return 2
    if found := list(problems(mutant for _, mutant in chosen)):
        print("\n".join(found), file=sys.stderr)
        return 2
    print("| kind | bug | file | seen by |")
    print("|---|---|---|---|")
    caught: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory(prefix="isthmus-mutants-") as name:
        folder = Path(name)
        copy_checkout(folder)
        tests = list(dict.fromkeys(test for _, mutant in chosen for test in mutant.tests))
        if outcome(tests, folder) != 0:
            print("mutants: the tests fail without any bug", file=sys.stderr)
            return 2
        for kind, mutant in chosen:
            with planted(mutant, folder):
                status = outcome(mutant.tests, folder)
            is_caught = status in (FAILED, None)
            caught.setdefault(kind, []).append(is_caught)
            seen_by = ", ".join(mutant.tests) if is_caught else f"**nothing** (pytest ended with {status})"
            print(f"| {kind} | {mutant.name} | {mutant.file} | {seen_by} |", flush=True)
    print()
    for kind, each in caught.items():
        print(f"{kind}: {sum(each)} of {len(each)} caught")
    return 0 if all(all(each) for each in caught.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
