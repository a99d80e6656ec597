"""`worker --reload`: runs the worker as a child, and starts it again when a Python file of the app has changed."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LOOK_S = 0.5
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENDED_S = 0.05  # how often it is looked whether a worker has ended
STOP_S = 15.0  # for a worker that was told to end; longer than it takes for its last checkpoint
SKIPPED = ("__pycache__", "node_modules", "site-packages", "build", "dist")
FILES_MAX = 20_000  # looked at


def python_files(folders: Sequence[Path]) -> Iterator[Path]:
    """Those below these folders, without hidden folders and what is not the app's own."""
    count = 0
    for folder in folders:
        for where, below, names in os.walk(folder):
            below[:] = [each for each in below if not each.startswith(".") and each not in SKIPPED]
            for name in names:
                if name.endswith(".py"):
                    count += 1
                    if count > FILES_MAX:
                        return
                    yield Path(where, name)


def seen(folders: Sequence[Path]) -> dict[Path, int]:
    """When each file was changed, in ns."""
    found = {}
    for path in python_files(folders):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return found


def changed(before: dict[Path, int], after: dict[Path, int]) -> list[Path]:
    return [path for path in {**before, **after} if before.get(path) != after.get(path)]


def without(arguments: Sequence[str], flag: str) -> list[str]:
    return [each for each in arguments if each != flag]


def watched(name: str | None = None) -> list[Path]:
    """The folders whose files are an app's: the present one, and that of the script or of what `name` names."""
    own = _file_of(name) if name else Path(sys.argv[0])
    folders = [Path.cwd()]
    if own is not None and not (folder := own.resolve().parent).is_relative_to(folders[0]):
        folders.append(folder)
    return folders


def _file_of(name: str) -> Path | None:
    """Where the app is that `-A` names; of a module in a package, the file of the outermost one. None: nowhere, yet."""
    where = name.rpartition(":")[0] or name
    if where.endswith(".py"):
        return Path(where)
    with contextlib.suppress(ValueError, ImportError):
        spec = importlib.util.find_spec(where.partition(".")[0])
        return None if spec is None or spec.origin is None else Path(spec.origin)
    return None


def run_reloading(folders: Sequence[Path], start_in: Path) -> int:
    """Run this command line again without --reload, for every change of the files. Returns the exit code at Ctrl-C or
    SIGTERM; a second one kills the worker. start_in: where the command line was given."""
    command = [sys.executable, *without(sys.orig_argv[1:], "--reload")]
    # Python knows the code that it has kept of a file by the second of its change: two within one would be one.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # they come where they are waited for
    print(f"watching {', '.join(str(each) for each in folders)}; Ctrl-C ends", flush=True)
    while True:
        before = seen(folders)
        child = subprocess.Popen(command, cwd=start_in, env=environment, preexec_fn=_begin)
        told = False
        while not (changes := changed(before, seen(folders))):
            if child.poll() == 0:
                return 0
            if child.returncode is not None and not told:
                told = True
                print(f"the worker has ended with {child.returncode}, and starts again when a file has changed")
                sys.stdout.flush()
            if signal.sigtimedwait(SIGNALS, LOOK_S):
                _end(child)
                return 0
        print(f"changed: {', '.join(path.name for path in changes[:3])}; the worker starts again", flush=True)
        if _end(child):
            return 0


def _begin() -> None:
    """In the child. It ends with its parent: it would go on with code that nobody watches any more."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(child: subprocess.Popen[bytes]) -> bool:
    """Whether a signal has come meanwhile."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    over_at = time.monotonic() + STOP_S
    is_told = False
    while child.poll() is None and not is_told and time.monotonic() < over_at:
        is_told = signal.sigtimedwait(SIGNALS, ENDED_S) is not None
    child.kill()
    child.wait()
    return is_told
