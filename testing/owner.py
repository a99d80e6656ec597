"""Who things that are made for a while belong to: a process, named so that a later one can tell whether it still runs.

What a test or the demo makes (folders, containers, networks, volumes) carries its owner's name. What carries the name
of a process of this machine that is gone was left behind by a crash, and the next to start something removes it. Names
of other machines, of other pid namespaces and of earlier boots say nothing that could be looked up, so they are left
alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..deploy.supervisor import start_ticks

PREFIX = "isthmus-testing-"  # of folders; the owner follows
_NAME = re.compile(r"([0-9a-f]{12})-(\d+)-(\d+)")


@dataclass(frozen=True)
class Owner:
    """A process. machine: boot and pid namespace that pid and start (clock ticks since boot) belong to."""

    machine: str
    pid: int
    start: int

    @classmethod
    def this_process(cls) -> Owner:
        return cls(_machine(), os.getpid(), start_ticks(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that a name holds; None where there is none."""
        found = _NAME.search(text)
        return cls(found[1], int(found[2]), int(found[3])) if found else None

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.start}"

    @property
    def gone(self) -> bool:
        """Whether it is known to be gone."""
        return self.machine == _machine() and start_ticks(self.pid) != self.start


def make_folder(prefix: str = PREFIX) -> Path:
    """A folder of this process in the system's folder for temporary files."""
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{Owner.this_process()}-"))


def left_folders(prefix: str = PREFIX) -> list[Path]:
    """Folders whose owners are gone."""
    folders = sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*"))
    return [folder for folder in folders if (owner := Owner.parse(folder.name)) and owner.gone]


def remove_left_folders(prefix: str = PREFIX, spare: Callable[[Path], bool] = lambda folder: False) -> None:
    for folder in left_folders(prefix):
        if not spare(folder):
            with contextlib.suppress(OSError):  # another run was faster, or it is another user's
                shutil.rmtree(folder)


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
