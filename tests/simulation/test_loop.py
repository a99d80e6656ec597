"""The simulated loop and network: what product code may rely on, and what may happen to it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.running import run_by

from .hosts import ProcessKilled
from .network import Link
from .runner import Simulation, run, run_checked


class Recorder(asyncio.Protocol):
    """Keeps what happens to it; optionally echoes."""

    def __init__(self, *, echo: bool = False) -> None:
        self.echo = echo
        self.data = bytearray()
        self.pieces = 0
        self.lost: list[BaseException | None] = []
        self.eof = False
        self.paused = 0
        self.resumed = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.eof = True

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1


async def pair(sim: Simulation, *, echo: bool = False) -> tuple[Recorder, Recorder]:
    """A connection from machine `a` to machine `b`: both protocols."""
    accepted: list[Recorder] = []

    def make() -> Recorder:
        accepted.append(Recorder(echo=echo))
        return accepted[-1]

    async def serve() -> None:
        await asyncio.get_running_loop().create_server(make, "0.0.0.0", 9092)

    async def dial() -> Recorder:
        _, protocol = await asyncio.get_running_loop().create_connection(Recorder, "b", 9092)
        return protocol

    await sim.machine("b").start().outcome(serve())
    client = await sim.machine("a").start().outcome(dial())
    await sim.until(lambda: bool(accepted) and hasattr(accepted[0], "transport"), "accepted")
    return client, accepted[0]


def test_an_hour_takes_well_under_a_second() -> None:
    async def scenario(sim: Simulation) -> None:
        async def tick() -> None:
            for _ in range(3600):
                await asyncio.sleep(1)

        process = sim.machine("a").start()
        await asyncio.gather(*(process.spawn(tick()) for _ in range(3)))
        assert 3600 <= sim.loop.time() < 3601

    started = time.process_time()
    run_checked(scenario)
    assert time.process_time() - started < 1.0


@run_by(run_checked)
async def test_timers_fire_in_order_of_their_time(sim: Simulation, /) -> None:
    fired: list[float] = []
    delays = [sim.random.random() for _ in range(200)]
    for delay in delays:
        sim.loop.call_later(delay, fired.append, delay)
    await asyncio.sleep(1.1)
    assert fired == sorted(delays)


@pytest.mark.parametrize("seed", range(10))
@run_by(run_checked)
async def test_bytes_arrive_in_order_and_in_pieces(sim: Simulation, /, seed: int) -> None:
    sim.network.default = Link(small_piece_chance=0.5)
    client, server = await pair(sim, echo=True)
    sent = sim.random.randbytes(300_000)
    position = 0
    while position < len(sent):
        size = sim.random.randint(1, 40_000)
        client.transport.write(sent[position : position + size])
        position += size
        await asyncio.sleep(sim.random.random() * 0.01)
    await sim.until(lambda: len(client.data) == len(sent), "echo")
    assert bytes(client.data) == sent == bytes(server.data)
    assert server.pieces > 5
    client.transport.close()
    await sim.until(lambda: bool(client.lost and server.lost), "both ends closed")
    assert client.lost == [None] == server.lost and server.eof


@run_by(run_checked)
async def test_a_reader_that_pauses_stops_the_writer(sim: Simulation, /) -> None:
    client, server = await pair(sim)
    server.transport.pause_reading()
    client.transport.set_write_buffer_limits(high=100_000, low=10_000)
    client.transport.write(bytes(5_000_000))
    await asyncio.sleep(10)
    assert client.paused == 1 and client.resumed == 0 and not server.data
    assert client.transport.get_write_buffer_size() > 1_000_000
    server.transport.resume_reading()
    await sim.until(lambda: len(server.data) == 5_000_000, "all read")
    await asyncio.sleep(1)
    assert client.resumed == 1 and client.transport.get_write_buffer_size() == 0


@run_by(run_checked)
async def test_what_a_writer_changes_before_it_is_sent_is_sent_changed(sim: Simulation, /) -> None:
    client, server = await pair(sim)
    buffer = bytearray(b"before")
    client.transport.write(memoryview(buffer))
    buffer[:] = b"after!"
    await sim.until(lambda: len(server.data) == 6, "delivery")
    assert server.data == b"after!"


@pytest.mark.parametrize("seed", range(20))
@run_by(run_checked)
async def test_a_cut_delivers_a_prefix_and_resets_both_ends(sim: Simulation, /, seed: int) -> None:
    client, server = await pair(sim)
    sent = sim.random.randbytes(200_000)
    client.transport.write(sent)
    await asyncio.sleep(sim.random.random() * 0.005)
    assert sim.network.cut("a", "b") == 1
    await sim.until(lambda: bool(client.lost and server.lost), "both ends reset")
    assert isinstance(client.lost[0], ConnectionResetError) and isinstance(server.lost[0], ConnectionResetError)
    assert sent.startswith(bytes(server.data))
    client.transport.write(b"more")
    await asyncio.sleep(1)
    assert len(client.lost) == len(server.lost) == 1
    assert not sim.network.connections


@run_by(run_checked)
async def test_a_partition_holds_bytes_back_until_it_heals(sim: Simulation, /) -> None:
    client, server = await pair(sim)
    sim.network.partition(["a"], ["b"])
    client.transport.write(b"held")
    server.transport.write(b"back")
    await asyncio.sleep(60)
    assert not server.data and not client.data and not client.lost
    sim.network.heal()
    await sim.until(lambda: server.data == b"held" and client.data == b"back", "delivery after the heal")


@run_by(run_checked)
async def test_a_partition_that_lasts_ends_in_a_timeout(sim: Simulation, /) -> None:
    client, server = await pair(sim)
    sim.network.partition(["a"], ["b"])
    client.transport.write(b"held")
    await asyncio.sleep(2000)
    assert isinstance(client.lost[0], TimeoutError)
    assert not server.lost  # wrote nothing: knows nothing


@run_by(run_checked)
async def test_nobody_listening_refuses_and_a_dark_machine_does_not_answer(sim: Simulation, /) -> None:
    async def dial() -> None:
        await asyncio.get_running_loop().create_connection(Recorder, "b", 1)

    sim.machine("b").start()
    process = sim.machine("a").start()
    with pytest.raises(ConnectionRefusedError):
        await process.outcome(dial())
    sim.machine("b").kill(power=True)
    before = sim.loop.time()
    with pytest.raises(OSError, match="no answer"):
        await process.outcome(dial())
    assert 100 < sim.loop.time() - before < 200


@pytest.mark.parametrize("power", [False, True])
@run_by(run_checked)
async def test_a_kill_makes_timers_sockets_and_finally_blocks_inert(sim: Simulation, /, power: bool) -> None:
    client, server = await pair(sim)
    marks: list[str] = []
    process = sim.machine("b").process
    assert process is not None

    async def worker() -> None:
        try:
            await asyncio.sleep(1)
            marks.append("slept")
        finally:
            marks.append("finally")
            server.transport.write(b"last words")

    outcome = process.outcome(worker())
    process.context.run(sim.loop.call_later, 1.0, marks.append, "timer")
    server.transport.write(b"first words")
    await asyncio.sleep(0.5)
    sim.machine("b").kill(power=power)
    with pytest.raises(ProcessKilled):
        await outcome
    await asyncio.sleep(10)
    assert marks == [] and client.data == b"first words"
    if power:
        assert not client.lost
        client.transport.write(b"anyone?")
        await asyncio.sleep(10)
        assert not client.lost
    sim.machine("b").start()
    await sim.until(lambda: bool(client.lost), "the survivor sees it")
    assert not server.lost


@run_by(run_checked)
async def test_what_leaves_the_simulation_is_refused(sim: Simulation, /) -> None:
    with pytest.raises(AssertionError, match="run_in_executor"):
        await asyncio.to_thread(print)
    with pytest.raises(AssertionError, match="subprocess"):
        await asyncio.create_subprocess_exec("true")


def test_a_run_that_hangs_or_spins_says_so() -> None:
    async def hang(sim: Simulation) -> None:
        await sim.loop.create_future()

    async def spin(sim: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    async def lasts(sim: Simulation) -> None:
        while True:
            await asyncio.sleep(1)

    assert "nothing is left" in (run(1, hang).error or "")
    assert "spins" in (run(1, spin).error or "")
    assert "limit of 500" in (run(1, lasts, limit_s=500).error or "")


def test_an_error_that_nobody_handles_fails_the_run() -> None:
    class Bad(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("planted")

    async def scenario(sim: Simulation) -> None:
        client, _ = await pair(sim)
        client.transport.set_protocol(Bad())
        sim.network.connections[1][1].write(b"x")
        await asyncio.sleep(1)

    assert "planted" in (run(1, scenario).error or "")


@run_by(run_checked)
async def test_turns_of_a_process_are_counted(sim: Simulation, /) -> None:
    process = sim.machine("a").start()

    async def yields(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    await process.outcome(yields(10))
    assert process.turns == 11


def test_a_seed_repeats_its_history_and_another_makes_its_own() -> None:
    async def scenario(sim: Simulation) -> None:
        client, _ = await pair(sim, echo=True)
        for _ in range(50):
            client.transport.write(sim.random.randbytes(sim.random.randint(1, 5000)))
            await asyncio.sleep(sim.random.random())

    assert run_checked(scenario, 1).digest == run_checked(scenario, 1).digest != run_checked(scenario, 2).digest
