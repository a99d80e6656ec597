"""Parts leave in order: bytes by send, ranges by sendfile, both waiting for a slow reader."""

import asyncio
import errno
import os
import socket
import struct
import threading
import weakref

import pytest

from isthmus.core_broker.server._sending import JOIN_BYTES, SMALL_RANGE_BYTES, Output, Sender
from isthmus.core_broker.server.cold_sends import ColdSends
from isthmus.core_broker.storage.disk._data_file import FileRange
from isthmus.core_broker.storage.disk.real_files import RealFiles
from tests.running import in_loop, run_by

from .sending_ends import FILES, BadSector, Owner, Transport, cold_file, make_file, received


def data_segments(sock):
    """How many packets with data have left a socket."""
    return struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 156)[0]


@pytest.fixture
def tcp_ends():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, theirs:
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else what is small waits anyhow
        ours.setblocking(False)
        yield ours, theirs


def test_ranges_without_a_socket_are_read_in_order(tmp_path):
    file, content = make_file(tmp_path, 3_000_000)
    transport, owner = Transport(), Owner()
    sender = Sender(owner, Output(transport), 1 << 30, ColdSends(FILES))
    parts = [
        b"head",
        FileRange(file, 10, 20),
        bytearray(b"mid"),
        FileRange(file, 0, 0),
        FileRange(file, 100, 2_500_000),
    ]
    assert sender.send(parts)
    assert transport.data == b"head" + content[10:30] + b"mid" + content[100:2_500_100]


@run_by(in_loop)
async def test_sendfile_waits_for_a_slow_reader_and_closes_its_dup(tmp_path, ends):
    ours, theirs = ends
    file, content = make_file(tmp_path, 8_000_000)
    owner = Owner()
    sender = Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(FILES))
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


@run_by(in_loop)
async def test_turn_is_bounded(tmp_path, ends):
    ours, theirs = ends
    file, content = make_file(tmp_path, 100_000)
    owner = Owner()
    sender = Sender(owner, Output(Transport(ours)), 30_000, ColdSends(FILES))
    assert not sender.send([FileRange(file, 0, 100_000)])
    assert len(theirs.recv(1_000_000)) == 30_000
    got = 30_000
    while not owner.was_sent:
        await asyncio.sleep(0)
        try:
            got += len(theirs.recv(1_000_000))
        except BlockingIOError:
            pass
    assert got == 100_000


@pytest.mark.parametrize("end", [Sender.resume, Sender.close])
@run_by(in_loop)
async def test_a_turn_that_comes_when_all_has_been_sent_or_let_go_of_tells_nobody(tmp_path, end):
    file, _ = make_file(tmp_path, 300_000)
    owner = Owner()
    sender = Sender(owner, Output(Transport()), 200_000, ColdSends(FILES))
    parts = [FileRange(file, 0, 300_000), FileRange(file, 0, 9)]
    assert not sender.send(parts)  # the second waits for its turn
    end(sender)
    told = owner.was_sent
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert owner.was_sent == told == (end is Sender.resume)


def test_truncated_file_ends_the_connection_and_holds_nothing(tmp_path):
    file, _ = make_file(tmp_path, 1000)
    owner = Owner()
    sender = Sender(owner, Output(Transport()), 1 << 20, ColdSends(FILES))
    assert not sender.send([FileRange(file, 900, 500), b"never"])
    assert "ends before the range" in str(owner.error)
    assert owner.was_sent == 0


@pytest.mark.parametrize("has_socket", [True, False])
def test_range_that_the_disk_refuses_ends_the_connection_and_tells_its_log(tmp_path, monkeypatch, has_socket, ends):
    ours, _ = ends
    file, content = make_file(tmp_path, 1000)
    bad = BadSector(file)
    told = []

    def sendfile(to, source, position, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.sendfile", sendfile)
    owner = Owner()
    sender = Sender(owner, Output(Transport(ours if has_socket else None)), 1 << 20, ColdSends(FILES))
    assert not sender.send([FileRange(bad, 0, 100, told.append)])
    assert [error.errno for error in told] == [errno.EIO]
    assert "Input/output error" in str(owner.error)
    assert not sender._parts


def test_a_range_that_cannot_be_looked_for_ends_the_connection_also_behind_a_head(tmp_path, ends):
    ours, theirs = ends
    file, _ = make_file(tmp_path, 2 * SMALL_RANGE_BYTES)

    class Unopened(BadSector):
        def is_cached(self, position, n, missing_max_bytes=0):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    told = []
    owner = Owner()
    parts = [b"head", FileRange(Unopened(file), 0, 2 * SMALL_RANGE_BYTES, told.append)]
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(FILES)).send(parts)
    assert [error.errno for error in told] == [errno.EMFILE]
    assert "Too many open files" in str(owner.error) and theirs.recv(100) == b"head"


def test_client_that_is_gone_says_nothing_of_the_log(tmp_path, monkeypatch, ends):
    ours, _ = ends
    file, _ = make_file(tmp_path, 2 * SMALL_RANGE_BYTES)
    told = []
    monkeypatch.setattr("os.sendfile", lambda *_: (_ for _ in ()).throw(BrokenPipeError(errno.EPIPE, "gone")))
    owner = Owner()
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(FILES)).send(
        [FileRange(BadSector(file), 0, 2 * SMALL_RANGE_BYTES, told.append)]
    )
    assert isinstance(owner.error, BrokenPipeError)
    assert not told


def test_nothing_is_written_while_the_transport_is_full(tmp_path):
    file, content = make_file(tmp_path, 1000)
    owner, transport = Owner(), Transport()
    out = Output(transport)
    out.writable = False
    sender = Sender(owner, out, 1 << 20, ColdSends(FILES))
    assert not sender.send([b"x", FileRange(file, 0, 1000)])
    assert transport.data == b""
    out.writable = True
    sender.resume()
    assert owner.was_sent == 1
    assert transport.data == b"x" + content


def test_small_ranges_go_with_the_bytes_around_them(tmp_path, senders, tcp_ends):
    ours, theirs = tcp_ends
    file, content = make_file(tmp_path, 3 * SMALL_RANGE_BYTES)
    sender = Sender(Owner(), Output(Transport(ours)), 1 << 20, ColdSends(FILES))
    assert sender.send([b"a", FileRange(file, 5, 100), b"b", FileRange(file, 0, SMALL_RANGE_BYTES), b"c"])
    assert data_segments(ours) == 1
    wanted = b"a" + content[5:105] + b"b" + content[:SMALL_RANGE_BYTES] + b"c"
    assert theirs.recv(len(wanted), socket.MSG_WAITALL) == wanted
    assert not senders  # the control: a range that is larger goes from file to socket
    assert sender.send([FileRange(file, 0, SMALL_RANGE_BYTES + 1)])
    assert senders


def test_a_small_range_whose_file_was_cut_ends_the_connection(tmp_path, ends):
    ours, theirs = ends
    file, content = make_file(tmp_path, 1000)
    owner = Owner()
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(FILES)).send(
        [b"head", FileRange(file, 900, 500), b"never"]
    )
    assert "ends before the range at 1000, 400 bytes" in str(owner.error)
    assert theirs.recv(1000) == b"head" + content[900:] and owner.was_sent == 0


def test_bytes_are_joined_up_to_a_bound(tmp_path):
    file, _ = make_file(tmp_path, 10)
    transport = Transport()
    parts = [bytes(JOIN_BYTES // 2)] * 5 + [FileRange(file, 0, 10)]
    assert Sender(Owner(), Output(transport), 1 << 20, ColdSends(FILES)).send(parts)
    assert list(map(len, transport.writes)) == [JOIN_BYTES, JOIN_BYTES, JOIN_BYTES // 2, 10]


def test_each_range_is_asked_for_before_it_is_sent(tmp_path, ends):
    ours, _ = ends
    file, _ = make_file(tmp_path, 100_000)
    asked = []

    class Asked(ColdSends):
        def is_cold(self, file, position, n):
            asked.append((position, n))
            return False

    sender = Sender(Owner(), Output(Transport(ours)), 1 << 20, Asked(FILES))
    assert sender.send([FileRange(file, 50_000, 40_000), FileRange(file, 0, 40_000)])
    assert asked == [(50_000, 40_000), (0, 40_000)]


def test_a_range_that_is_sent_is_let_go_of_while_others_wait(tmp_path, ends):
    ours, _ = ends
    first = RealFiles(1).open(str(tmp_path / "first"))
    first.append([bytes(20_000)])
    last, content = make_file(tmp_path, 8_000_000)

    async def main(first):
        held = weakref.ref(first)
        owner = Owner()
        sender = Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(FILES))
        assert not sender.send([FileRange(first, 0, 20_000), FileRange(last, 0, len(content))])
        del first
        files.clear()
        assert held() is None and owner.was_sent == 0
        sender.close()

    files = [first]
    del first
    asyncio.run(main(files[0]))


@run_by(in_loop)
async def test_a_small_range_that_is_not_cached_waits_for_the_pool_not_the_loop(tmp_path, senders, ends):
    ours, theirs = ends
    files, file, content = cold_file(tmp_path, 1_000_000)
    owner = Owner()
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(files)).send([FileRange(file, 7, 100)])
    assert await received(theirs, 100, owner) == content[7:107]
    assert threading.get_ident() not in senders and files.waits == []


def test_a_head_goes_out_with_the_beginning_of_its_range(tmp_path, senders, tcp_ends):
    ours, theirs = tcp_ends
    file, content = make_file(tmp_path, 2 * SMALL_RANGE_BYTES)
    sender = Sender(Owner(), Output(Transport(ours)), 1 << 20, ColdSends(FILES))
    assert sender.send([b"he", b"ad", FileRange(file, 5, len(content) - 5), b"tail"])
    assert senders
    assert data_segments(ours) == 2
    ours.send(b"more")  # the control
    assert data_segments(ours) == 3
    wanted = b"head" + content[5:] + b"tailmore"
    assert theirs.recv(len(wanted), socket.MSG_WAITALL) == wanted


def test_of_a_head_that_the_socket_takes_in_part_the_rest_comes_before_the_range(tmp_path, senders, ends):
    ours, theirs = ends
    file, content = make_file(tmp_path, 2 * SMALL_RANGE_BYTES)
    head = os.urandom(JOIN_BYTES // 2)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, JOIN_BYTES // 8)

    class Buffers(Transport):
        def write(self, data):
            self.writes.append(bytes(data))
            out.writable = False

    async def main():
        sender = Sender(owner, out, 1 << 20, ColdSends(FILES))
        assert not sender.send([head, FileRange(file, 0, len(content))])
        [rest] = transport.writes
        taken = len(head) - len(rest)
        assert 0 < taken < len(head) and not senders
        got = bytearray()
        while len(got) < taken:
            got += theirs.recv(100_000)
        assert got + rest == head
        out.writable = True
        sender.resume()
        assert await received(theirs, len(content), owner) == content

    owner, transport = Owner(), Buffers(ours)
    out = Output(transport)
    asyncio.run(main())


def test_what_a_socket_refuses_of_a_head_is_left_to_the_transport(tmp_path, ends):
    ours, theirs = ends
    theirs.close()
    file, content = make_file(tmp_path, 2 * SMALL_RANGE_BYTES)

    class Lost(Transport):
        def write(self, data):
            self.writes.append(bytes(data))
            out.writable = False  # as one that waits for its loop to tell of the end

    owner, transport = Owner(), Lost(ours)
    out = Output(transport)
    assert not Sender(owner, out, 1 << 20, ColdSends(FILES)).send([b"head", FileRange(file, 0, len(content))])
    assert transport.writes == [b"head"] and owner.error is None


@run_by(in_loop)
async def test_a_head_goes_alone_where_its_range_is_not_cached(tmp_path, ends):
    ours, theirs = ends
    files, file, content = cold_file(tmp_path, 2 * SMALL_RANGE_BYTES)
    owner = Owner()
    parts = [b"head", FileRange(file, 0, len(content))]
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(files)).send(parts)
    assert theirs.recv(100, socket.MSG_PEEK) == b"head" and files.waits == []
    assert await received(theirs, 4 + len(content), owner) == b"head" + content
