"""`worker --reload`: runs the worker as a child, and starts it again when a Python file of the app has changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LOOK_S = 0.5
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


def watched() -> list[Path]:
    """The folders whose files are an app's: the present one, and that of the script."""
    script = Path(sys.argv[0]).resolve()
    own = [] if script.name == "__main__.py" else [script.parent]
    return [Path.cwd(), *(each for each in own if not each.is_relative_to(Path.cwd()))]


def run_reloading(folders: Sequence[Path]) -> int:
    """Run this command line again without --reload, for every change of the files. Returns the exit code at Ctrl-C."""
    command = [sys.executable, *without(sys.orig_argv[1:], "--reload")]
    print(f"watching {', '.join(str(each) for each in folders)}; Ctrl-C ends", flush=True)
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            before = seen(folders)
            child = subprocess.Popen(command)
            told = False
            while not (changes := changed(before, seen(folders))):
                if child.poll() == 0:
                    return 0
                if child.returncode is not None and not told:
                    told = True
                    print(f"the worker has ended with {child.returncode}, and starts again when a file has changed")
                    sys.stdout.flush()
                time.sleep(LOOK_S)
            print(f"changed: {', '.join(path.name for path in changes[:3])}; the worker starts again", flush=True)
            _end(child)
    except KeyboardInterrupt:
        return 0
    finally:
        if child is not None:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
