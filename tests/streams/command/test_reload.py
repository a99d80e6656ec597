"""`worker --reload`: an app that cannot be loaded, saves in one second, folders elsewhere, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RELOADING = [sys.executable, "-u", "-m", "isthmus.streams"]
AGAIN = "starts again when a file has changed"
HANGS = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: print("told to end"))
print("pid", os.getpid())
while True:
    signal.pause()
"""


@contextlib.contextmanager
def reloading(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*RELOADING, *arguments, "worker", "--reload", "--without-web"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def test_a_syntax_error_is_shown_and_waited_for(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("from isthmus.streams import App\napp = App('shop')\nfrom . import part\n")
    part = package / "part.py"
    part.write_text("def (\n")
    with reloading(tmp_path, "-A", "shop:app") as process:
        assert "part.py:1: SyntaxError" in said_until(process, AGAIN)
        part.write_text("print('the new file')\nraise SystemExit(0)\n")
        said_until(process, "the new file")
        assert process.wait(30) == 0


def test_files_saved_twice_in_a_second_and_in_another_folder_are_seen(tmp_path: Path) -> None:
    (tmp_path / "apps").mkdir()
    here = tmp_path / "here"
    here.mkdir()
    part = tmp_path / "apps" / "part.py"

    def save(words: str, time_ns: int) -> None:
        new = part.with_suffix(".new")
        new.write_text(f"print('{words}')\n")
        os.utime(new, ns=(time_ns, time_ns))
        new.replace(part)

    save("first", 1_700_000_000_100_000_000)
    (tmp_path / "apps" / "shop.py").write_text("import part\nraise SystemExit(3)\n")
    with reloading(here, "-W", "../here", "-A", "../apps/shop.py:app") as process:
        assert "first" in said_until(process, AGAIN)
        save("other", 1_700_000_000_600_000_000)
        assert "other" in said_until(process, AGAIN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_kills_a_worker_that_does_not_end(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "shop.py").write_text(HANGS)
    with reloading(tmp_path, "-A", "shop.py:app") as process:
        assert process.stdout is not None
        worker = int(said_until(process, "pid").split()[-1])
        process.send_signal(number)
        said_until(process, "told to end")
        process.send_signal(number)
        assert process.stdout.read() == ""
        assert process.wait(30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_worker_ends_with_who_watches_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import time\nprint('begun')\ntime.sleep(20)\nprint('went on')\n")
    with reloading(tmp_path, "-A", "shop.py:app") as process:
        assert process.stdout is not None
        said_until(process, "begun")
        process.kill()
        assert process.stdout.read() == ""
