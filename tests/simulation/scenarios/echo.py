"""The simulator on itself: a server that logs to disk and echoes, under every fault there is.

What was answered with `fsync` is on disk after the last crash; what is on disk is a prefix of what was sent.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from ..hosts import Process
from ..runner import Simulation

RECORD = struct.Struct(">Q")
RECORDS = 60
PORT = 9092
GATHERED_S = 0.04  # for which a record may wait for others before a sync, so that a crash often finds some unsynced


class Server(asyncio.Protocol):
    def __init__(self, process: Process) -> None:
        self.process = process
        self.log = process.files.open("/log")
        self.buffer = bytearray()
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        whole = len(self.buffer) // RECORD.size * RECORD.size
        if whole:
            task = asyncio.get_running_loop().create_task(self.store(bytes(self.buffer[:whole])))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            del self.buffer[:whole]

    async def store(self, records: bytes) -> None:
        self.log.append([records])
        await asyncio.sleep(self.process.runtime.random.uniform(0.0, GATHERED_S))
        await self.process.files.run(self.log.sync)
        self.transport.write(records)


class Sender(asyncio.Protocol):
    def __init__(self) -> None:
        self.buffer = bytearray()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


async def serve(process: Process) -> None:
    log = process.files.open("/log")
    log.truncate(log.size // RECORD.size * RECORD.size)
    process.files.sync_directory("/")
    await asyncio.get_running_loop().create_server(lambda: Server(process), "0.0.0.0", PORT)


async def send(process: Process, acked: list[int]) -> None:
    """Numbers in order, each again until it is answered."""
    loop = asyncio.get_running_loop()
    number = 0
    while number < RECORDS:
        try:
            transport, sender = await loop.create_connection(Sender, "server", PORT)
        except OSError:
            await asyncio.sleep(process.runtime.random.random())
            continue
        while number < RECORDS and not sender.lost.done():
            transport.write(RECORD.pack(number))
            await asyncio.wait([sender.lost], timeout=0.05)
            if len(sender.buffer) >= RECORD.size:
                assert RECORD.unpack_from(sender.buffer)[0] <= number
                if RECORD.unpack_from(sender.buffer)[0] == number:
                    acked.append(number)
                    number += 1
                del sender.buffer[: RECORD.size]
        transport.abort()


async def echo(sim: Simulation) -> None:
    machine = sim.machine("server")
    await machine.start().outcome(serve(machine.process))  # type: ignore[arg-type]
    acked: list[int] = []
    client = sim.machine("client").start()
    work = client.outcome(send(client, acked))
    chance = sim.random
    while not work.done():
        await asyncio.sleep(chance.uniform(0.1, 2.0))
        fault = chance.choice(("kill", "power", "point", "cut", "partition"))
        if fault == "cut":
            sim.network.cut()
            continue
        if fault == "partition":
            sim.network.partition(["client"], ["server"], both_ways=chance.random() < 0.5)
            await asyncio.sleep(chance.uniform(0.1, 3.0))
            sim.network.heal()
            continue
        if fault == "point":
            machine.kill_at_disk_operation(chance.randint(1, 10))
            await asyncio.sleep(0.5)
        machine.kill(power=fault == "power")
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        process = machine.start()
        stored = stored_numbers(process)
        assert set(acked) <= set(stored), f"answered but not on disk: {sorted(set(acked) - set(stored))}"
        await process.outcome(serve(process))
    await work
    assert machine.process is not None
    assert sorted(set(stored_numbers(machine.process))) == list(range(RECORDS))


def stored_numbers(process: Process) -> list[int]:
    if not process.files.exists("/log"):
        return []
    data = process.files.read("/log")
    return [number for (number,) in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size])]
