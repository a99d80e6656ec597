"""Parts leave in order: bytes by the transport, ranges by sendfile, both waiting for a slow reader."""

import asyncio
import contextlib
import errno
import os
import socket

import pytest

from isthmus.core_broker.server.sending import Sender
from isthmus.core_broker.storage.files import FileRange, RealFiles
from isthmus.core_broker.storage.read_ahead import ReadAhead

from ..cold import ColdFiles

FILES = RealFiles(1)


class Owner:
    def __init__(self):
        self.writable = True
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

    def get_extra_info(self, name, default=None):
        return self.sock if name == "socket" else None

    def is_closing(self):
        return False

    def write(self, data):
        if self.sock is None:
            self.data += bytes(data)
        else:
            assert self.sock.send(data) == len(data)


def make_file(tmp_path, size):
    file = RealFiles(1).open(str(tmp_path / "segment"))
    content = os.urandom(size)
    file.append([content])
    return file, content


def test_ranges_without_a_socket_are_read_in_order(tmp_path):
    file, content = make_file(tmp_path, 3_000_000)
    transport, owner = Transport(), Owner()
    sender = Sender(owner, transport, 1 << 30, ReadAhead(FILES))
    parts = [
        b"head",
        FileRange(file, 10, 20),
        bytearray(b"mid"),
        FileRange(file, 0, 0),
        FileRange(file, 100, 2_500_000),
    ]
    assert sender.send(parts)
    assert transport.data == b"head" + content[10:30] + b"mid" + content[100:2_500_100]


def test_sendfile_waits_for_a_slow_reader_and_closes_its_dup(tmp_path):
    file, content = make_file(tmp_path, 8_000_000)

    async def main():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        owner = Owner()
        sender = Sender(owner, Transport(ours), 1 << 20, ReadAhead(FILES))
        before = len(os.listdir("/proc/self/fd"))
        assert not sender.send([b"head", FileRange(file, 0, len(content)), b"tail"])
        got = bytearray()
        while len(got) < len(content) + 8:
            try:
                got += theirs.recv(100_000)
            except BlockingIOError:
                await asyncio.sleep(0)
        assert bytes(got) == b"head" + content + b"tail"
        await asyncio.sleep(0)
        assert owner.was_sent == 1
        assert len(os.listdir("/proc/self/fd")) == before
        ours.close()
        theirs.close()

    asyncio.run(main())


def test_turn_is_bounded(tmp_path):
    file, content = make_file(tmp_path, 100_000)

    async def main():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        owner = Owner()
        sender = Sender(owner, Transport(ours), 30_000, ReadAhead(FILES))
        assert not sender.send([FileRange(file, 0, 100_000)])
        theirs.setblocking(False)
        assert len(theirs.recv(1_000_000)) == 30_000
        got = 30_000
        while not owner.was_sent:
            await asyncio.sleep(0)
            try:
                got += len(theirs.recv(1_000_000))
            except BlockingIOError:
                pass
        assert got == 100_000
        ours.close()
        theirs.close()

    asyncio.run(main())


def test_truncated_file_ends_the_connection_and_holds_nothing(tmp_path):
    file, _ = make_file(tmp_path, 1000)
    owner = Owner()
    sender = Sender(owner, Transport(), 1 << 20, ReadAhead(FILES))
    assert not sender.send([FileRange(file, 900, 500), b"never"])
    assert "ends before the range" in str(owner.error)
    assert owner.was_sent == 0


class BadSector:
    """The file, whose bytes the disk refuses to give to anyone."""

    def __init__(self, file):
        self.file = file
        self.path = file.path

    def __getattr__(self, name):
        return getattr(self.file, name)

    def pread(self, n, position):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("has_socket", [True, False])
def test_range_that_the_disk_refuses_ends_the_connection_and_tells_its_log(tmp_path, monkeypatch, has_socket):
    file, content = make_file(tmp_path, 1000)
    bad = BadSector(file)
    told = []

    def sendfile(to, source, position, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.sendfile", sendfile)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        owner = Owner()
        sender = Sender(owner, Transport(ours if has_socket else None), 1 << 20, ReadAhead(FILES))
        assert not sender.send([FileRange(bad, 0, 100, told.append)])
        assert [error.errno for error in told] == [errno.EIO]
        assert "Input/output error" in str(owner.error)
        assert not sender._parts


def test_client_that_is_gone_says_nothing_of_the_log(tmp_path, monkeypatch):
    file, _ = make_file(tmp_path, 1000)
    told = []
    monkeypatch.setattr("os.sendfile", lambda *_: (_ for _ in ()).throw(BrokenPipeError(errno.EPIPE, "gone")))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        owner = Owner()
        assert not Sender(owner, Transport(ours), 1 << 20, ReadAhead(FILES)).send(
            [FileRange(BadSector(file), 0, 100, told.append)]
        )
        assert isinstance(owner.error, BrokenPipeError)
        assert not told


def test_nothing_is_written_while_the_transport_is_full(tmp_path):
    file, content = make_file(tmp_path, 1000)
    owner, transport = Owner(), Transport()
    owner.writable = False
    sender = Sender(owner, transport, 1 << 20, ReadAhead(FILES))
    assert not sender.send([b"x", FileRange(file, 0, 1000)])
    assert transport.data == b""
    owner.writable = True
    sender.resume()
    assert owner.was_sent == 1
    assert transport.data == b"x" + content


def cold_file(tmp_path, size):
    files = ColdFiles()
    content = os.urandom(size)
    file = files.open(str(tmp_path / "cold"))
    file.append([content])
    files.chill()
    return files, file, content


@pytest.mark.parametrize("has_socket", [True, False])
def test_what_is_cold_is_brought_before_it_is_sent(tmp_path, has_socket):
    files, file, content = cold_file(tmp_path, 5_000_000)

    async def main():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            owner, transport = Owner(), Transport(ours if has_socket else None)
            sender = Sender(owner, transport, 1 << 20, ReadAhead(files, 1 << 20))
            assert not sender.send([b"head", FileRange(file, 100, 4_000_000), b"tail"])
            wanted = b"head" + content[100:4_000_100] + b"tail"
            got = bytearray()
            while len(got if has_socket else transport.data) < len(wanted):
                await asyncio.sleep(0)
                with contextlib.suppress(BlockingIOError):
                    got += theirs.recv(1 << 20)
            while not owner.was_sent:
                await asyncio.sleep(0)
            assert (got if has_socket else transport.data) == wanted
            assert owner.was_sent == 1 and owner.error is None

    asyncio.run(main())
    assert files.waits == [] and files.read_aheads


def test_a_cold_reader_is_kept_ahead_of(tmp_path):
    """One wait at first; what follows is asked for before it is reached."""
    files, file, content = cold_file(tmp_path, 16 << 20)
    waited = []

    async def main():
        transport, owner = Transport(), Owner()
        ahead = ReadAhead(files, 4 << 20)
        bring = ahead.bring
        ahead.bring = lambda *args: waited.append(args[1]) or bring(*args)
        for at in range(0, 15 << 20, 1 << 19):
            before = owner.was_sent
            if not Sender(owner, transport, 1 << 30, ahead).send([FileRange(file, at, 1 << 19)]):
                while owner.was_sent == before:
                    await asyncio.sleep(0)
            while ahead._tasks:
                await asyncio.sleep(0)
        assert not ahead._asked or max(ahead._asked.values()) <= len(content) + (4 << 20)

    asyncio.run(main())
    assert waited == [0] and files.waits == []


def test_a_disk_that_refuses_a_cold_read_ends_the_connection_and_tells_the_log(tmp_path):
    files, file, _ = cold_file(tmp_path, 100_000)
    files.broken = OSError(5, "broken")
    told = []

    async def main():
        owner = Owner()
        sender = Sender(owner, Transport(), 1 << 20, ReadAhead(files))
        assert not sender.send([FileRange(file, 0, 100_000, told.append)])
        while owner.error is None:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [error.errno for error in told] == [5] and files.waits == []


def test_a_sender_that_is_closed_while_bytes_are_brought_sends_nothing(tmp_path):
    files, file, _ = cold_file(tmp_path, 100_000)

    async def main():
        owner, transport, ahead = Owner(), Transport(), ReadAhead(files)
        sender = Sender(owner, transport, 1 << 20, ahead)
        assert not sender.send([FileRange(file, 0, 100_000)])
        sender.close()
        while ahead._tasks:
            await asyncio.sleep(0)
        assert not transport.data and not owner.was_sent and owner.error is None

    asyncio.run(main())
