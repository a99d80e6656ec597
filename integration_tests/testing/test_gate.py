"""A gate alone: it tells brokers apart, stops the bytes of one, either way, and lets all of it go on in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from isthmus.testing.keeper import gate as module
from isthmus.testing.keeper.gate import Gate
from isthmus.testing.keeper.owners import owner

TIMEOUT_S = 30.0
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def guarded() -> AsyncIterator[tuple[asyncio.Queue[Stream], Gate]]:
    """What comes to a server, and the gate to it. Broker 2 is who comes from 127.0.0.2, and so on."""
    came: asyncio.Queue[Stream] = asyncio.Queue()
    async with asyncio.timeout(TIMEOUT_S):
        server = await asyncio.start_server(lambda *stream: came.put_nowait(stream), "127.0.0.1", 0)
        gate = Gate(server.sockets[0].getsockname(), lambda own, peer: int(own[0].rpartition(".")[2]))
        gate.start()
        try:
            yield came, gate
        finally:
            gate.close()
            server.close()


async def connect(gate: Gate, broker: int) -> Stream:
    host, _, port = gate.address.rpartition(":")
    return await asyncio.open_connection(host, int(port), local_addr=(f"127.0.0.{broker}", 0))


async def passes(sender: Stream, receiver: Stream, data: bytes) -> None:
    sender[1].write(data)
    assert await receiver[0].readexactly(len(data)) == data


def test_one_broker_is_cut_off_and_the_others_are_not() -> None:
    async def scenario() -> None:
        async with guarded() as (came, gate):
            two, two_there = await connect(gate, 2), await came.get()
            three, three_there = await connect(gate, 3), await came.get()
            await passes(two, two_there, b"a")
            gate.let(2, inward=False, outward=False)
            waits = [asyncio.create_task(passes(*ends, b"hello")) for ends in ((two, two_there), (two_there, two))]
            new = await connect(gate, 2)
            await passes(three, three_there, b"clock" * 1000)
            await passes(three_there, three, b"clock" * 1000)
            assert not any(each.done() for each in waits) and came.empty()
            gate.let(2, inward=True, outward=True)
            await asyncio.gather(*waits)
            await passes(new, await came.get(), b"late")

    asyncio.run(scenario())


@pytest.mark.parametrize("inward", [True, False])
def test_one_way_may_be_cut_alone(inward: bool) -> None:
    async def scenario() -> None:
        async with guarded() as (came, gate):
            near, far = await connect(gate, 2), await came.get()
            gate.let(2, inward=inward, outward=not inward)
            goes, waits = ((near, far), (far, near)) if inward else ((far, near), (near, far))
            waiting = asyncio.create_task(passes(*waits, b"hello"))
            await passes(*goes, b"clock" * 1000)
            new = [await connect(gate, 2), await connect(gate, 3)]
            await passes(new[1], await came.get(), b"clock")
            assert came.empty() and not waiting.done()  # a new connection needs both ways
            gate.let(2, inward=True, outward=True)
            await waiting
            await passes(new[0], await came.get(), b"late")

    asyncio.run(scenario())


def test_connections_are_bounded_and_those_given_up_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)

    async def scenario() -> None:
        async with guarded() as (came, gate):
            gate.let(2, inward=False, outward=False)
            for _ in range(4):
                _, writer = await connect(gate, 2)
                writer.close()
                await writer.wait_closed()
            kept = [await connect(gate, 2) for _ in range(2)]
            reader, _ = await connect(gate, 2)
            assert await reader.read() == b""
            gate.let(2, inward=True, outward=True)
            for each in kept:
                await passes(each, await came.get(), b"x")

    asyncio.run(scenario())


def test_a_connection_is_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as other:  # fmt: skip
        with socket.create_connection(server.getsockname()) as near:
            ends = near.getsockname(), near.getpeername()
            assert owner(*ends, {1: other.pid, 2: os.getpid()}) == 2
            assert owner(*ends, {1: other.pid}) is None
        assert owner(*ends, {2: os.getpid()}) is None
        other.kill()
