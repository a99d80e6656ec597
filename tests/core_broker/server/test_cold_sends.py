"""What the page cache does not have is sent by the pool, and the loop waits for no disk."""

import asyncio
import contextlib
import errno
import os
import socket
import threading

import pytest

from isthmus.core_broker.server import cold_sends
from isthmus.core_broker.server._sending import SMALL_RANGE_BYTES, Output, Sender
from isthmus.core_broker.server.cold_sends import FEW, PIECE_BYTES, WAITS_MAX, ColdSends
from isthmus.core_broker.storage.disk._data_file import FileRange
from isthmus.core_broker.storage.disk.real_files import RealFiles
from tests.running import in_loop, run_by

from ..cold import PAGE
from .sending_ends import Owner, Transport, cold_file, make_file, received


@run_by(in_loop)
async def test_what_is_cold_is_sent_by_the_pool(tmp_path, senders, ends):
    ours, theirs = ends
    files, file, content = cold_file(tmp_path, 5_000_000)
    before = len(os.listdir("/proc/self/fd"))
    owner = Owner()
    sender = Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(files))
    assert not sender.send([b"head", FileRange(file, 100, 4_000_000), b"tail"])
    wanted = b"head" + content[100:4_000_100] + b"tail"
    assert await received(theirs, len(wanted), owner) == wanted
    assert threading.get_ident() not in senders and files.waits == []
    files.is_cold = False  # the control: what is cached is sent by the loop, and would be seen
    sender = Sender(Owner(), Output(Transport(ours)), 1 << 20, ColdSends(files))
    assert sender.send([FileRange(file, 0, 2 * SMALL_RANGE_BYTES)])
    assert senders[-1] == threading.get_ident()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_cold_is_read_by_the_pool_where_there_is_no_socket(tmp_path):
    files, file, content = cold_file(tmp_path, 3_000_000)

    async def main():
        owner, transport = Owner(), Transport()
        assert not Sender(owner, Output(transport), 1 << 20, ColdSends(files)).send(
            [FileRange(file, 5, 2_900_000), b"tail"]
        )
        while not owner.was_sent:
            await asyncio.sleep(0)
        assert transport.data == content[5:2_900_005] + b"tail"

    asyncio.run(main())
    assert files.waits == []


async def outcome_of(cold, file, position, n, fd=-1):
    done = asyncio.get_running_loop().create_future()
    cold.send(file, fd, position, n, lambda *outcome: done.set_result(outcome))
    return await done


async def send_piece(cold, file, position):
    """By the pool, to nobody."""
    assert (await outcome_of(cold, file, position, PIECE_BYTES))[2] is None


@run_by(in_loop)
async def test_a_cold_reader_stays_with_the_pool_until_it_has_caught_up(tmp_path):
    """What the system has read ahead does not call it back: to send that makes the system read on, which may wait."""
    files, file, _ = cold_file(tmp_path, 40 << 20)
    cold = ColdSends(files)
    step = PIECE_BYTES
    assert cold.is_cold(file, 0, step)
    await send_piece(cold, file, 0)
    files.cached.update((file.path, page) for page in range(30 << 8))  # 30 MB read ahead
    assert cold.is_cold(file, step, step) and cold.is_cold(file, step - 1000, step)
    assert not cold.is_cold(file, 5 * step, step)  # another reader, of what is cached
    await send_piece(cold, file, step)
    files.is_cold = False
    await send_piece(cold, file, 2 * step)
    assert not cold.is_cold(file, 3 * step, step)


def test_who_has_read_all_there_is_has_caught_up(tmp_path):
    """A file that is in the page cache, and that ends before all of what is looked at ahead."""
    file, _ = make_file(tmp_path, 3 * PIECE_BYTES)
    files = RealFiles(1)
    cold = ColdSends(files)

    async def main():
        await send_piece(cold, file, 0)
        assert not cold.is_cold(file, PIECE_BYTES, PIECE_BYTES)

    asyncio.run(main())
    files.close()


@run_by(in_loop)
async def test_a_place_where_a_read_failed_is_not_remembered(tmp_path):
    files, file, _ = cold_file(tmp_path, 2 * PIECE_BYTES)
    cold = ColdSends(files)
    files.broken = OSError(errno.EIO, "broken")
    assert (await outcome_of(cold, file, 0, PIECE_BYTES))[2] is files.broken
    files.broken = None
    files.is_cold = False
    assert not cold.is_cold(file, 0, PIECE_BYTES)


@run_by(in_loop)
async def test_who_misses_few_pages_of_many_has_the_loop(tmp_path):
    files, file, _ = cold_file(tmp_path, 80 << 20)
    cold = ColdSends(files)
    piece = PIECE_BYTES // PAGE
    lost = [piece + 100, 3 * piece + 20, 50 * piece]
    files.cached.update((file.path, page) for page in range(piece, file.size // PAGE) if page not in lost)
    assert cold.is_cold(file, 0, PIECE_BYTES)
    await send_piece(cold, file, 0)
    assert not any(cold.is_cold(file, position, PIECE_BYTES) for position in range(PIECE_BYTES, file.size, PIECE_BYTES))
    files.cached.difference_update((file.path, page) for page in range(piece, piece + piece // FEW))
    assert cold.is_cold(file, PIECE_BYTES, PIECE_BYTES)  # with the one from above it is one more than few


@run_by(in_loop)
async def test_several_cold_readers_of_one_file_stay_with_the_pool(tmp_path, monkeypatch):
    monkeypatch.setattr(cold_sends, "READERS_MAX", 2)
    files, file, _ = cold_file(tmp_path, 40 << 20)
    cold = ColdSends(files)
    step = PIECE_BYTES
    await send_piece(cold, file, 0)
    await send_piece(cold, file, 10 * step)
    files.cached.update((file.path, page) for page in range(20 << 8))
    assert cold.is_cold(file, step, step) and cold.is_cold(file, 11 * step, step)
    assert not cold.is_cold(file, 5 * step, step)  # the control: it is cached
    await send_piece(cold, file, 11 * step)
    assert cold.is_cold(file, step, step)  # the second went on, and is not a third
    await send_piece(cold, file, 15 * step)
    assert not cold.is_cold(file, step, step)  # past the bound the one goes that was not seen for longest


@run_by(in_loop)
async def test_a_cold_reader_stays_with_the_pool_and_no_head_waits_for_it(tmp_path, senders, ends):
    ours, theirs = ends
    files, file, content = cold_file(tmp_path, 40 << 20)
    size = 1 << 20
    cold = ColdSends(files)
    for at in 0, size, 2 * size:
        owner = Owner()
        assert not Sender(owner, Output(Transport(ours)), size, cold).send([b"head", FileRange(file, at, size)])
        assert theirs.recv(100, socket.MSG_PEEK) == b"head"
        assert await received(theirs, 4 + size, owner) == b"head" + content[at : at + size]
        files.cached.update((file.path, page) for page in range(30 << 8))  # 30 MB read ahead
    assert senders and threading.get_ident() not in senders


@run_by(in_loop)
async def test_a_reader_that_does_not_read_gives_the_thread_back(tmp_path, ends):
    ours, theirs = ends
    files, file, content = cold_file(tmp_path, 3_000_000)
    owner, cold = Owner(), ColdSends(files)
    assert not Sender(owner, Output(Transport(ours)), 1 << 20, cold).send([FileRange(file, 0, len(content))])
    while cold._tasks:
        await asyncio.sleep(0)
    assert not owner.was_sent
    assert await received(theirs, len(content), owner) == content


@pytest.mark.parametrize(("has_room", "calls"), [(True, WAITS_MAX + 1), (False, 1)])
def test_a_thread_waits_for_room_for_so_long_only(tmp_path, monkeypatch, ends, has_room, calls):
    """A socket with room that takes nothing, and one without any."""
    ours, _ = ends
    files, file, _ = cold_file(tmp_path, 100_000)
    asked = []

    def refused(*args):
        asked.append(args)
        raise BlockingIOError if len(asked) < 100 else OSError("no end")

    monkeypatch.setattr(os, "sendfile", refused)
    with contextlib.suppress(BlockingIOError):
        while not has_room:
            ours.send(bytes(100_000))
    outcome = asyncio.run(outcome_of(ColdSends(files), file, 0, 100_000, os.dup(ours.fileno())))
    assert outcome == (0, b"", None) and len(asked) == calls


@run_by(in_loop)
async def test_an_error_after_some_bytes_is_told_at_its_byte(tmp_path, monkeypatch, ends):
    ours, _ = ends
    files, file, _ = cold_file(tmp_path, 100_000)
    outcomes = [700, 300, BrokenPipeError(errno.EPIPE, "gone"), BrokenPipeError(errno.EPIPE, "gone")]

    def some(*args):
        if isinstance(outcome := outcomes.pop(0), OSError):
            raise outcome
        return outcome

    monkeypatch.setattr(os, "sendfile", some)
    cold = ColdSends(files)
    assert await outcome_of(cold, file, 0, 100_000, os.dup(ours.fileno())) == (1000, b"", None)
    assert isinstance((await outcome_of(cold, file, 1000, 99_000, os.dup(ours.fileno())))[2], BrokenPipeError)


def test_a_file_that_was_cut_ends_the_connection_of_its_cold_reader(tmp_path, ends):
    ours, _ = ends
    files, file, _ = cold_file(tmp_path, 100_000)

    async def main():
        owner = Owner()
        assert not Sender(owner, Output(Transport(ours)), 1 << 20, ColdSends(files)).send(
            [FileRange(file, 90_000, 20_000)]
        )
        while owner.error is None:
            await asyncio.sleep(0)
        assert "ends before the range at 100000, 10000 bytes" in str(owner.error)

    asyncio.run(asyncio.wait_for(main(), 10))


def refused_by(broken, tmp_path, monkeypatch, sock):
    """What the owner of a sender and the log are told where a cold read fails so, sent or only read."""
    files, file, _ = cold_file(tmp_path, 100_000)
    files.broken = broken
    told = []

    def refuse(*args):
        raise broken

    async def main():
        owner = Owner()
        monkeypatch.setattr(os, "sendfile", refuse)
        sender = Sender(owner, Output(Transport(sock)), 1 << 20, ColdSends(files))
        assert not sender.send([FileRange(file, 0, 100_000, told.append)])
        while owner.error is None:
            await asyncio.sleep(0)
        return owner.error

    return asyncio.run(asyncio.wait_for(main(), 10)), told


@pytest.mark.parametrize("has_socket", [True, False])
def test_a_disk_that_refuses_a_cold_read_ends_the_connection_and_tells_the_log(tmp_path, monkeypatch, has_socket, ends):
    broken = OSError(errno.EIO, "broken")
    _, told = refused_by(broken, tmp_path, monkeypatch, ends[0] if has_socket else None)
    assert [error.errno for error in told] == [errno.EIO]


@pytest.mark.parametrize("has_socket", [True, False])
def test_no_memory_for_a_cold_read_ends_the_connection_and_takes_no_partition_offline(
    tmp_path, monkeypatch, has_socket, ends
):
    """The connection was left to its idle timeout."""
    broken = MemoryError()
    error, told = refused_by(broken, tmp_path, monkeypatch, ends[0] if has_socket else None)
    assert error is broken and not told


@run_by(in_loop)
async def test_a_sender_that_is_closed_while_the_pool_sends_ends_there(tmp_path):
    files, file, _ = cold_file(tmp_path, 100_000)
    owner, transport, cold = Owner(), Transport(), ColdSends(files)
    sender = Sender(owner, Output(transport), 1 << 20, cold)
    assert not sender.send([FileRange(file, 0, 100_000)])
    sender.close()
    while cold._tasks:
        await asyncio.sleep(0)
    assert not transport.data and not owner.was_sent and owner.error is None


@run_by(in_loop)
async def test_a_thread_that_sends_keeps_its_descriptor_when_who_asked_is_cancelled(tmp_path, monkeypatch, ends):
    """Its number would be another's by then, and so would be what it sends."""
    ours, _ = ends
    files, file, _ = cold_file(tmp_path, 100_000)
    begun, goes_on = threading.Event(), threading.Event()
    is_ours = []

    def slow(fd, *args):
        begun.set()
        assert goes_on.wait(10)
        with contextlib.suppress(OSError):
            is_ours.append(os.path.samestat(os.fstat(fd), os.fstat(ours.fileno())))
        return 100_000

    monkeypatch.setattr(os, "sendfile", slow)
    cold, before = ColdSends(files), len(os.listdir("/proc/self/fd"))
    cold.send(file, os.dup(ours.fileno()), 0, 100_000, lambda *outcome: None)
    while not begun.is_set():
        await asyncio.sleep(0)
    for task in cold._tasks:
        task.cancel()
    while cold._tasks:
        await asyncio.sleep(0)
    goes_on.set()
    files.close()
    assert is_ours == [True] and len(os.listdir("/proc/self/fd")) == before
