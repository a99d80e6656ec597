"""What the tests of deploy share: a PATH whose commands are shell scripts of the test's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


class Commands:
    """A folder that is the whole PATH, with commands that say and end as they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sh", "cat", "sleep"):
            (folder / name).symlink_to(str(shutil.which(name)))

    def script(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def says(self, name: str, out: str = "", err: str = "", code: int = 0) -> None:
        self.script(name, f"cat <<'EOT'\n{out}\nEOT\ncat >&2 <<'EOT'\n{err}\nEOT\nexit {code}")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return made
