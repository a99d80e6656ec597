"""The line that can be cut, alone: bytes stop in both directions, nothing is closed, and all of it goes on in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from isthmus.testing.keeper import relay
from isthmus.testing.keeper.relay import Relay

TIMEOUT_S = 30.0


class Echo:
    """A server that sends back what it gets, and remembers all of it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.got += data
                writer.write(data)
                await writer.drain()
            writer.close()


@contextlib.asynccontextmanager
async def lines(count: int = 1) -> AsyncIterator[tuple[Echo, list[Relay]]]:
    """Relays to one echo server."""
    echo = Echo()
    async with asyncio.timeout(TIMEOUT_S):
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        made = [Relay(server.sockets[0].getsockname()) for _ in range(count)]
        for each in made:
            each.bind()
            each.start()
        try:
            yield echo, made
        finally:
            for each in made:
                each.close()
            server.close()


async def connect(line: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = line.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def round_trip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    assert await reader.readexactly(len(data)) == data


def test_bytes_and_their_end_pass_both_ways() -> None:
    async def scenario() -> None:
        async with lines() as (echo, [line]):
            reader, writer = await connect(line)
            data = os.urandom(3 << 20)
            sending = asyncio.create_task(round_trip(reader, writer, data))
            await sending
            writer.write_eof()
            assert await reader.read() == b""  # the echo closed, having seen our end
            assert bytes(echo.got) == data
            writer.close()

    asyncio.run(scenario())


def test_a_cut_stops_every_byte_and_closes_nothing() -> None:
    """A round trip on the other line, begun later, is the clock: what went through had time to."""

    async def scenario() -> None:
        async with lines(2) as (echo, [line, other]):
            reader, writer = await connect(line)
            beside = await connect(other)
            await round_trip(reader, writer, b"before")
            line.cut()
            writer.write(b"to the far side")
            echo.writers[0].write(b"to the near side")
            listening = asyncio.create_task(reader.readexactly(1))
            await round_trip(*beside, b"clock" * 1000)
            assert b"to the far side" not in echo.got
            assert not listening.done()
            assert not reader.at_eof()
            assert not writer.is_closing()
            line.mend()
            assert await listening + await reader.readexactly(30) == b"to the near sideto the far side"
            assert b"to the far side" in echo.got
            writer.close()
            beside[1].close()

    asyncio.run(scenario())


def test_control_without_the_cut_the_same_bytes_arrive_by_then() -> None:
    async def scenario() -> None:
        async with lines(2) as (echo, [line, other]):
            reader, writer = await connect(line)
            beside = await connect(other)
            await round_trip(reader, writer, b"before")
            writer.write(b"to the far side")
            await round_trip(*beside, b"clock" * 1000)
            assert b"to the far side" in echo.got
            writer.close()
            beside[1].close()

    asyncio.run(scenario())


def test_a_stream_that_is_cut_many_times_arrives_whole_and_in_order() -> None:
    async def scenario() -> None:
        async with lines() as (echo, [line]):
            reader, writer = await connect(line)
            data = os.urandom(8 << 20)
            sending = asyncio.create_task(_send(writer, data))
            received = bytearray()
            cuts = 0
            while len(received) < len(data):
                received += await reader.read(1 << 16)
                if len(received) > cuts << 20:
                    cuts += 1
                    line.cut()
                    asyncio.get_running_loop().call_later(0.01, line.mend)
            await sending
            assert cuts == 8
            assert bytes(received) == data == bytes(echo.got)
            writer.close()

    asyncio.run(scenario())


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    for at in range(0, len(data), 100_000):
        writer.write(data[at : at + 100_000])
        await writer.drain()


def test_who_connects_to_a_cut_line_hears_nothing_until_it_is_mended() -> None:
    async def scenario() -> None:
        async with lines(2) as (echo, [line, other]):
            line.cut()
            reader, writer = await connect(line)
            asked = asyncio.create_task(round_trip(reader, writer, b"hello"))
            beside = await connect(other)
            await round_trip(*beside, b"clock" * 1000)
            assert echo.connections == 1  # the other's
            assert not asked.done()
            line.mend()
            await asked
            writer.close()
            beside[1].close()

    asyncio.run(scenario())


def test_a_target_that_is_dead_refuses_and_one_that_dies_resets() -> None:
    async def scenario() -> None:
        async with lines() as (echo, [line]):
            reader, writer = await connect(line)
            await round_trip(reader, writer, b"hello")
            far = echo.writers[0].get_extra_info("socket")
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, relay._RESET)
            echo.writers[0].transport.abort()
            with pytest.raises(ConnectionError):
                await reader.readexactly(1)
            writer.close()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                dead = Relay(free.getsockname())
                dead.bind()
                dead.start()
                reader, writer = await connect(dead)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                dead.close()

    asyncio.run(scenario())


def test_who_does_not_read_stops_who_sends() -> None:
    """The relay holds CHUNK_BYTES of a direction; all else is in the kernel's bounded buffers."""

    async def scenario() -> None:
        async with lines() as (_, [line]):
            loop = asyncio.get_running_loop()
            near = socket.socket()
            near.setblocking(False)
            host, _, port = line.address.rpartition(":")
            await loop.sock_connect(near, (host, int(port)))
            sent = 0
            with contextlib.suppress(TimeoutError):
                while True:  # nobody reads what the echo sends back
                    async with asyncio.timeout(1.0):
                        await loop.sock_sendall(near, bytes(1 << 16))
                    sent += 1 << 16
                    assert sent < 64 << 20
            near.close()

    asyncio.run(scenario())


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CONNECTIONS_MAX", 2)

    async def scenario() -> None:
        async with lines() as (_, [line]):
            opened = [await connect(line) for _ in range(2)]
            for each in opened:
                await round_trip(*each, b"x")
            reader, writer = await connect(line)
            assert await reader.read() == b""
            for _, one in opened:
                one.close()
            writer.close()

    asyncio.run(scenario())
