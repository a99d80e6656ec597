"""The log of one partition on a machine that is started, used and killed, again and again, until a last start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig

from ..hosts import Machine, Process, ProcessKilled
from ..runner import Simulation

DATA = "/data"
TOPIC_ID = bytes(15) + b"\1"
LIVES = 4

Check = Callable[[Log, Process, bool], None]  # the bool: whether the life before ended by a power cut
Live = Callable[[LogManager, Log, Process], Awaitable[None]]
Last = Callable[[LogManager, Log], Awaitable[None]]


async def lives(
    sim: Simulation,
    machine: Machine,
    options: ManagerConfig,
    config: LogConfig,
    high_watermark: Callable[[], int],
    *,
    check: Check,
    doom: Callable[[bool], None],
    live: Live,
    last: Last | None = None,
) -> None:
    """`check` looks at what each start finds; `doom` may choose a disk operation at which the machine dies, told
    whether the power is to go with it; `live` uses the log until then or until a clean shutdown; `last` has the last
    start."""
    power = False
    for life in range(LIVES + 1):
        process = machine.start()
        try:
            logs = await process.outcome(open_logs(process, options, config, high_watermark))
            log = logs.logs["t", 0]
            check(log, process, power)
            power = False
            if life == LIVES:
                if last is not None:
                    await process.outcome(last(logs, log))
                return
            doom(sim.random.random() < 0.6)
            await process.outcome(live(logs, log, process))
            machine.kill(power=sim.random.random() < 0.3)  # a clean shutdown stands a power cut
        except ProcessKilled:
            power = not machine.powered
    raise AssertionError("the last start was killed")


async def open_logs(
    process: Process, options: ManagerConfig, config: LogConfig, high_watermark: Callable[[], int]
) -> LogManager:
    logs = LogManager(process.files, DATA, process.runtime, options)
    logs.high_watermark_of = lambda topic, index: high_watermark()
    await logs.open(1)
    await logs.create("t", 0, TOPIC_ID, config)
    return logs
