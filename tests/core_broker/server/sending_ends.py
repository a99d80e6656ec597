"""What a sender has at its ends: an owner, a transport, files of which the page cache has nothing, a reader."""

import asyncio
import contextlib
import errno
import os

from isthmus.core_broker.storage.disk.real_files import RealFiles

from ..cold import ColdFiles

FILES = RealFiles(1)


class Owner:
    def __init__(self):
        self.was_sent = 0
        self.error = None

    def sent(self):
        self.was_sent += 1

    def send_failed(self, error):
        self.error = error


class Transport:
    """Writes straight to a socket, or to a list where there is none."""

    def __init__(self, sock=None):
        self.sock = sock
        self.data = b""
        self.writes = []

    def get_extra_info(self, name, default=None):
        return self.sock if name == "socket" else None

    def is_closing(self):
        return False

    def write(self, data):
        self.writes.append(bytes(data))
        if self.sock is None:
            self.data += bytes(data)
        else:
            assert self.sock.send(data) == len(data)


def make_file(tmp_path, size):
    file = RealFiles(1).open(str(tmp_path / "segment"))
    content = os.urandom(size)
    file.append([content])
    return file, content


class BadSector:
    """The file, whose bytes the disk refuses to give to anyone."""

    def __init__(self, file):
        self.file = file
        self.path = file.path

    def __getattr__(self, name):
        return getattr(self.file, name)

    def pread(self, n, position):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    pread_cached = pread


def cold_file(tmp_path, size):
    files = ColdFiles()
    content = os.urandom(size)
    file = files.open(str(tmp_path / "cold"))
    file.append([content])
    files.chill()
    return files, file, content


async def received(theirs, size, owner):
    """So many bytes, read little by little; and the sender has said that it is through, once."""
    got = bytearray()
    while len(got) < size:
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            got += theirs.recv(100_000)
    while not owner.was_sent:
        await asyncio.sleep(0)
    assert owner.was_sent == 1 and owner.error is None
    return got
