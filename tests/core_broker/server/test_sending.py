"""Parts leave in order: bytes by the transport, ranges by sendfile, both waiting for a slow reader."""

import asyncio
import os
import socket

from isthmus.core_broker.server.sending import Sender
from isthmus.core_broker.storage.files import FileRange, RealFiles


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
    sender = Sender(owner, transport, 1 << 30)
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
        sender = Sender(owner, Transport(ours), 1 << 20)
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
        sender = Sender(owner, Transport(ours), 30_000)
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
    sender = Sender(owner, Transport(), 1 << 20)
    assert not sender.send([FileRange(file, 900, 500), b"never"])
    assert "ends before the range" in str(owner.error)
    assert owner.was_sent == 0


def test_nothing_is_written_while_the_transport_is_full(tmp_path):
    file, content = make_file(tmp_path, 1000)
    owner, transport = Owner(), Transport()
    owner.writable = False
    sender = Sender(owner, transport, 1 << 20)
    assert not sender.send([b"x", FileRange(file, 0, 1000)])
    assert transport.data == b""
    owner.writable = True
    sender.resume()
    assert owner.was_sent == 1
    assert transport.data == b"x" + content
