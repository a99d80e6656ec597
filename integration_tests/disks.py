"""File systems of the tests' own, too small or broken, in mount namespaces where nobody else sees them.

`Mounts(devices=False)` needs no rights: it has a user namespace, and file systems in memory. With devices it needs
those of root: then a file system can lie on a loop device that refuses to be read or written as a broken disk does.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

MB = 1 << 20
LONGEST_TEST_S = 600
_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, with a flag
_WRITE_OUT = 0  # what is not written yet
_LOSE = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH: neither data nor the journal is written any more
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mounts:
    """A mount namespace, held by a process that sleeps. Skips the test where the machine does not allow it."""

    def __init__(self, *, devices: bool = False) -> None:
        self._devices = devices
        self.after: dict[Path, str] = {}  # what files of the system held that are the machine's, not the namespace's
        rights = [] if devices else ["--user", "--map-root-user"]
        command = ["unshare", *rights, "--mount", "sh", "-c", f"echo made && exec sleep {LONGEST_TEST_S}"]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._holder.stdout
        if self._holder.stdout.readline() != "made\n":
            self.close()
            pytest.skip(f"mount namespaces are not allowed here{' without the rights of root' if devices else ''}")

    @property
    def inside(self) -> list[str]:
        """What a command begins with to run where the mounts are."""
        rights = [] if self._devices else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self._holder.pid}", *rights, "--mount"]

    def run(self, *command: str | Path) -> str:
        """What a command says, run inside; an error when it fails."""
        done = subprocess.run([*self.inside, *map(str, command)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
        return done.stdout

    def memory(self, path: Path, size_bytes: int) -> None:
        """Mount a file system in memory."""
        path.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", path)

    def memory_for(self, directory: Path, size_bytes: int) -> None:
        """The same in place of a directory, which keeps its files."""
        stage = directory.parent / f"{directory.name}.stage"
        self.memory(stage, size_bytes)
        self.run("cp", "-a", f"{directory}/.", stage)
        self.run("mount", "--move", stage, directory)
        stage.rmdir()

    def resize(self, path: Path, size_bytes: int) -> None:
        self.run("mount", "-o", f"remount,size={size_bytes}", path)

    def fill(self, path: Path) -> Path:
        """Leave no room in a file system; gives the file that takes it."""
        filler = path / "filler"
        subprocess.run([*self.inside, "dd", "if=/dev/zero", f"of={filler}", "bs=4096"], capture_output=True, timeout=60)
        return filler

    def seen(self, path: Path) -> Path:
        """Where this process finds what lies there inside."""
        return Path(f"/proc/{self._holder.pid}/root{path}")

    def switch_off(self, volumes: Sequence[Volume], pids: Sequence[int]) -> None:
        """A power cut: at one moment the volumes lose what they have not been told to keep, and processes end.

        Who looks inside then finds another boot of the machine.
        """
        boot_id = volumes[0].pool / "boot_id"
        self.run(
            sys.executable,
            "-c",
            "import fcntl, os, signal, struct, sys, uuid; boot_id, pids, *paths = sys.argv[1:];"
            "opened = [os.open(path, os.O_RDONLY) for path in paths];"
            f"cuts = [fcntl.ioctl(each, {_SHUT_DOWN}, struct.pack('I', {_LOSE})) for each in opened];"
            "kills = [os.kill(int(each), signal.SIGKILL) for each in pids.split()];"
            "open(boot_id, 'w').write(f'{uuid.uuid4()}\\n')",
            boot_id,
            " ".join(map(str, pids)),
            *[each.path for each in volumes],
        )
        self.run("mount", "--bind", boot_id, _BOOT_ID)

    def close(self) -> None:
        """All mounts go with the last process inside."""
        self._holder.send_signal(signal.SIGKILL)
        self._holder.wait()
        assert self._holder.stdout
        self._holder.stdout.close()
        for file, content in self.after.items():
            file.write_text(content)


class Volume:
    """An ext4 on a loop device whose bytes are the file `image`, mounted at `path`.

    pool_bytes: room for the image, which the file system takes to be SIZE_BYTES: so it is promised what is not there,
    as on a thin volume, and finds that out when it writes to the device.

    has_journal: whether it comes back whole from a power cut; without, there is more room for what is stored.

    The device is given one page at a time: Linux' loop device takes a write that its file took half of for done, and so
    would have said of what lies at the end of the room that it is on disk.
    """

    SIZE_BYTES = 64 * MB

    def __init__(
        self, mounts: Mounts, folder: Path, pool_bytes: int = 2 * SIZE_BYTES, *, has_journal: bool = False
    ) -> None:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        self._mounts = mounts
        self.pool = folder / "pool"
        self.image = self.pool / "image"
        self.path = folder / "volume"
        self.path.mkdir()
        mounts.memory(self.pool, pool_bytes)
        mounts.run("truncate", f"--size={self.SIZE_BYTES}", self.image)
        journal = "has_journal" if has_journal else "^has_journal"
        lean = ("-O", f"{journal},^resize_inode", "-E", "lazy_itable_init=0,nodiscard")
        mounts.run("mkfs.ext4", "-q", "-F", "-b", "4096", *lean, self.image)
        done = subprocess.run([*mounts.inside, *self._mount], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"there are no loop devices here: {done.stderr.strip()}")
        self._give_single_pages()

    @property
    def _mount(self) -> list[str]:
        return ["mount", "-o", "loop", str(self.image), str(self.path)]

    def _give_single_pages(self) -> None:
        device = Path(self._mounts.run("findmnt", "--noheadings", "--output=SOURCE", self.path).strip())
        limit = Path("/sys/block") / device.name / "queue/max_sectors_kb"
        self._mounts.after[limit] = self._mounts.after.get(limit) or limit.read_text()
        try:
            limit.write_text("4")
        except OSError as error:
            pytest.skip(f"what loop devices are given at once cannot be set here: {error}")

    def hold(self, file: Path) -> None:
        """Have a file lie on this volume, and all beside it where it was."""
        copy = self.path / file.name
        self._mounts.run("cp", "-a", file, copy)
        self._mounts.run("mount", "--bind", copy, file)

    def mount_again(self, file: Path) -> None:
        """Nothing of it is in the page cache any more. Nobody may use it meanwhile."""
        self._mounts.run("umount", file)
        self._mounts.run("umount", self.path)
        self._mounts.run(*self._mount)
        self._give_single_pages()
        self._mounts.run("mount", "--bind", self.path / file.name, file)

    def forget(self, file: Path) -> None:
        """Have nothing of a file in the page cache, though its volume stays mounted."""
        script = "fd = os.open(rest[0], os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)"
        self._python(script, str(file))

    def lose(self, content: bytes) -> None:
        """The sectors from that content on cannot be read any more: EIO."""
        self._python(
            "at = open(image, 'rb').read().find(bytes.fromhex(rest[0])); assert at > 0, 'not on the device';"
            "import shutil; shutil.copy(image, image + '.whole'); os.truncate(image, at // 4096 * 4096)",
            content.hex(),
        )

    def find_again(self) -> None:
        """What was lost can be read again."""
        self._python("whole = open(image + '.whole', 'rb').read(); file = open(image, 'r+b'); file.write(whole)")

    def die(self) -> None:
        """From now on every call gives EIO, until it is mounted again."""
        shut_down = f"fcntl.ioctl(os.open(path, os.O_RDONLY), {_SHUT_DOWN}, struct.pack('I', {_WRITE_OUT}))"
        self._python(f"import fcntl, struct; {shut_down}")

    def _python(self, script: str, *rest: str) -> None:
        begin = "import os, sys; image, path, *rest = sys.argv[1:];"
        self._mounts.run(sys.executable, "-c", begin + script, self.image, self.path, *rest)
