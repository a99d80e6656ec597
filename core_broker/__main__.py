"""`python -m isthmus.core_broker`: one broker in the foreground. With `check DIR` in front: its data directory checked;
with `to-kafka DIR`: handed over to Apache Kafka; with `options`: those of a file, which it reads from stdin, checked.

Prints `ready HOST:PORT` once it serves, and tells it by `readiness.py`. Ends in a controlled way on SIGTERM, SIGINT
and, where that is not ignored, SIGHUP, within shutdown.timeout.ms, and at once on a second one. What is wrong with the
command line or an option is one line and exit code 2; whatever else keeps it from starting, or from stopping in a
controlled way, one line and exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from typing import NoReturn

import uvloop

from .. import runtime
from ..protocol.errors import KafkaError
from ..readiness import Readiness
from . import loggers, properties
from .broker import Broker, StartError
from .config import (
    BROKER_OPTIONS,
    OTHER_NAMES,
    BrokerConfig,
    ConfigError,
    broker_option,
    is_known,
    meant,
    without_effect,
)
from .storage.disk.real_files import RealFiles

log = logging.getLogger("isthmus.core_broker.broker")

EXIT_FAILED, EXIT_USAGE = 1, 2
CONFIG_FILE_MAX_BYTES = 1 << 20
VALUE_WIDTH = 32  # of a column; longer values are told in full beside it
# A broker's objects live for a request or for ever: looking at the young ones often finds nothing.
GC_THRESHOLDS = (50_000, 20, 100)
# Of the files a process may open. What is left is for checkpoints, indexes and sockets that wait to be written to.
CONNECTIONS_SHARE = 0.75
LOG_FILES_SHARE = 1 / 7


def options(arguments: list[str] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """The broker options that a command line gives, and what its file has beside them that no broker knows."""
    parser = argparse.ArgumentParser(prog="isthmus broker", description="Run one broker in the foreground.")
    parser.add_argument("--config", metavar="FILE", help="a server.properties of Kafka's; what the command line says "
                        "counts where both say something")  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="data directory (option log.dirs)")
    parser.add_argument("--listen", metavar="[NAME://]HOST:PORT", action="append", default=[],
                        help="address to listen on; several may be given; port 0 takes a free one")  # fmt: skip
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], dest="options",
                        help="any broker option; may be repeated")  # fmt: skip
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus' metrics and the broker's health "
                        "over HTTP (option metrics.listener); port 0 takes a free one")  # fmt: skip
    parsed = parser.parse_args(arguments)
    given = {}
    for text in parsed.options:
        name, mark, value = text.partition("=")
        if not mark:
            raise ConfigError(f"--set {text}: expected NAME=VALUE")
        given[name.strip()] = value
    listeners = [each if "://" in each else f"PLAINTEXT://{each}" for each in parsed.listen]
    for option, value, name in (
        ("--data", parsed.data, "log.dirs"),
        ("--metrics", parsed.metrics, "metrics.listener"),
        ("--listen", ",".join(listeners) if listeners else None, "listeners"),
    ):
        if value is None:
            continue
        if name in given:
            raise ConfigError(f"both {option} and --set {name}: say it once")
        if not value:  # of a variable that is not set: not to be taken for the option left out
            raise ConfigError(f"{option} is empty")
        given[name] = value
    in_file, unknown = ({}, {}) if parsed.config is None else read_file(parsed.config)
    said = {OTHER_NAMES[name] for name in given if name in OTHER_NAMES}  # the file's other name of it counts no more
    return {name: value for name, value in in_file.items() if name not in said} | given, unknown


def read_file(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options of a properties file: those that a broker of ours or Kafka's has, and all others.

    A name that is nearly one of an option is a slip, and refused.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    if len(data) > CONFIG_FILE_MAX_BYTES:
        raise ConfigError(
            f"--config {path}: it has more than {CONFIG_FILE_MAX_BYTES >> 20} MiB: it is no file of options"
        )
    found = properties.parse(data.decode("latin-1"), path)  # as Java reads it
    unknown = {name: value for name, value in found.items() if not is_known(name)}
    for name in unknown:
        if way_out := meant(name):
            raise ConfigError(f"{path}: unknown option {name}: {way_out}")
    return {name: value for name, value in found.items() if name not in unknown}, unknown


def not_needed(config: BrokerConfig, unknown: dict[str, str]) -> str:
    """A table of the options that were given and change nothing here; empty where there are none."""
    rows = without_effect(BROKER_OPTIONS, config.given) + [
        (name, value, "no option of a broker") for name, value in sorted(unknown.items())
    ]
    if not rows:
        return ""
    names, values = max(len(row[0]) for row in rows), min(max(len(row[1]) for row in rows), VALUE_WIDTH)
    lines = [f"  {name:<{names}}  {value:<{values}}  {why}" for name, value, why in rows]
    return "\n".join(["options that this broker does not need, and why:", *lines])


async def serve(config: BrokerConfig, readiness: Readiness) -> str:
    """Run a broker until a signal stops it; gives what it could not write then, in one line, or ""."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            end_at_once("a second signal came")
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
        loop.add_signal_handler(signal.SIGHUP, stopping.set)  # it is no second one: systemd may send it behind SIGTERM
    files = RealFiles(
        config["file.pool.threads"],
        config["max.open.log.files"],
        read_threads=config["cold.read.threads"],
        compute_threads=config["compression.threads"],
    )
    broker = Broker(config, runtime.system(), files)
    starting = asyncio.ensure_future(broker.start())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        say_ready(broker.address)
        readiness.tell(broker.address)
        await stopped
    limit_ms = config["shutdown.timeout.ms"]
    too_long = f"stopping took longer than shutdown.timeout.ms={limit_ms}"
    watchdog = loop.call_later(limit_ms / 1000, end_at_once, too_long)
    unwritten = ""
    if starting.done():
        unwritten = await broker.stop()
    else:
        log.info("stopped before it was ready")
        starting.cancel()
        await asyncio.wait([starting])
    await asyncio.to_thread(files.close)  # it waits for what the threads are at, which the watchdog must outlive
    watchdog.cancel()
    return unwritten


def say_ready(address: str) -> None:
    """On stdout; where nobody can be told there, the broker serves all the same."""
    try:
        print(f"ready {address}", flush=True)
    except OSError as error:
        log.warning("stdout takes no word of being ready at %s: %s", address, error.strerror)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)  # or the line, which is still there, would fail once more at the end


def hold_standard_streams() -> None:
    """Have something open as descriptors 0 to 2, or sockets and logs would get these, and what is printed with them."""
    while (held := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(held)


def end_at_once(why: str) -> NoReturn:
    """End the process without more ado: what is not on disk by now, the next start looks for."""
    print(f"isthmus broker: ended at once: {why}; the next start recovers its logs", file=sys.stderr, flush=True)
    os._exit(EXIT_FAILED)


def raise_file_limit() -> int:
    """Let this process have as many files and connections as the system allows; gives how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leave_files(given: dict[str, str], limit: int) -> None:
    """Where the system allows few files, connections must not take those that the logs need."""
    if limit > 0:
        for name, share in (("max.connections", CONNECTIONS_SHARE), ("max.open.log.files", LOG_FILES_SHARE)):
            option = broker_option(name)
            most = max(int(limit * share), int(option.low or 1))
            if name not in given and most < BrokerConfig()[name]:
                given[name] = str(most)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["check"]:
        from .checking.command import main as check

        return check(arguments[1:])
    if arguments[:1] == ["to-kafka"]:
        from .moving import main as move

        return move(arguments[1:])
    if arguments == ["options"]:
        from .wrong_options import main as check_options

        return check_options()
    readiness = Readiness.take()
    hold_standard_streams()
    limit = raise_file_limit()
    try:
        given, unknown = options(arguments)
        leave_files(given, limit)
        config = BrokerConfig(given)
        loggers.configure(config["log.format"])
        if table := not_needed(config, unknown):
            log.info("%s", table)
        unwritten = uvloop.run(serve(config, readiness))
    except ConfigError as error:
        print(f"isthmus broker: {error.message}", file=sys.stderr)
        return EXIT_USAGE
    except StartError as error:
        print(f"isthmus broker: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KafkaError as error:
        print(f"isthmus broker: {error.message}", file=sys.stderr)
        return EXIT_FAILED
    if unwritten:
        print(f"isthmus broker: {unwritten}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
