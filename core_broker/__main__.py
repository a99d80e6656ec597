"""`python -m isthmus.core_broker`: one broker in the foreground. Other uses: `check DIR` checks its data directory,
`to-kafka DIR` hands it over to Apache Kafka, `options` checks options read from stdin.

Prints `ready HOST:PORT` when it serves, and reports that by `readiness.py`. SIGTERM, SIGINT and, unless it is ignored,
SIGHUP stop it cleanly, within shutdown.timeout.ms; a second signal ends it at once. An error in the command line or in
an option is reported in one line, with exit code 2. Any other error that prevents a start or a clean stop is reported
in one line, with exit code 1.
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
from .broker import Broker
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
from .start_errors import StartError
from .storage.disk.real_files import RealFiles

log = logging.getLogger("isthmus.core_broker.broker")

EXIT_FAILED, EXIT_USAGE = 1, 2
CONFIG_FILE_MAX_BYTES = 1 << 20
VALUE_WIDTH = 32  # of a column; longer values are not cut, but exceed it
# A broker's objects live for one request or for ever: frequent collections of young objects find nothing.
GC_THRESHOLDS = (50_000, 20, 100)
# Shares of the process' file limit. The rest is for checkpoints, indexes and duplicated sockets.
CONNECTIONS_SHARE = 0.75
LOG_FILES_SHARE = 1 / 7


def options(arguments: list[str] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """The broker options of a command line, and the options in its file that no broker knows."""
    parser = argparse.ArgumentParser(prog="isthmus broker", description="Run one broker in the foreground.")
    parser.add_argument("--config", metavar="FILE", help="a server.properties file as Kafka's; the command line takes "
                        "precedence")  # fmt: skip
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
            raise ConfigError(f"both {option} and --set {name} are given: use one of them")
        if not value:  # perhaps a shell variable that is not set; not the same as no option
            raise ConfigError(f"{option} is empty")
        given[name] = value
    in_file, unknown = ({}, {}) if parsed.config is None else read_file(parsed.config)
    overridden = {OTHER_NAMES[name] for name in given if name in OTHER_NAMES}  # also replaces the file's synonym
    return {name: value for name, value in in_file.items() if name not in overridden} | given, unknown


def read_file(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options of a properties file: those that our broker or Kafka's has, and all others.

    A name that is almost that of an option is taken for a typing error, and refused.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    if len(data) > CONFIG_FILE_MAX_BYTES:
        raise ConfigError(
            f"--config {path}: it has more than {CONFIG_FILE_MAX_BYTES >> 20} MiB: it is not a file of options"
        )
    found = properties.parse(data.decode("latin-1"), path)  # as Java reads it
    unknown = {name: value for name, value in found.items() if not is_known(name)}
    for name in unknown:
        if way_out := meant(name):
            raise ConfigError(f"{path}: unknown option {name}: {way_out}")
    return {name: value for name, value in found.items() if name not in unknown}, unknown


def not_needed(config: BrokerConfig, unknown: dict[str, str]) -> str:
    """A table of the given options that have no effect here; empty if there are none."""
    rows = without_effect(BROKER_OPTIONS, config.given) + [
        (name, value, "no option of a broker") for name, value in sorted(unknown.items())
    ]
    if not rows:
        return ""
    names, values = max(len(row[0]) for row in rows), min(max(len(row[1]) for row in rows), VALUE_WIDTH)
    lines = [f"  {name:<{names}}  {value:<{values}}  {why}" for name, value, why in rows]
    return "\n".join(["options without effect on this broker, and why:", *lines])


async def serve(config: BrokerConfig, readiness: Readiness) -> str:
    """Run a broker until a signal stops it. Returns what it could not write, in one line, or ""."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            end_at_once("second signal")
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        loop.add_signal_handler(
            signal.SIGHUP, stopping.set
        )  # never the second signal: systemd may send it after SIGTERM
    files = RealFiles(
        config["file.pool.threads"],
        config["max.open.log.files"],
        read_threads=config["cold.read.threads"],
        compute_threads=config["compression.threads"],
    )
    broker = Broker(config, runtime.system(), files)
    broker.on_broken = end_at_once
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
        readiness.tell_where_asked()
        readiness.beat(loop)
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
    await asyncio.to_thread(files.close)  # waits for the threads, so the watchdog must still run
    watchdog.cancel()
    return unwritten


def say_ready(address: str) -> None:
    """Print the line to stdout. If that fails, the broker serves nevertheless."""
    try:
        print(f"ready {address}", flush=True)
    except OSError as error:
        log.warning("cannot print to stdout: ready at %s: %s", address, error.strerror)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)  # else flushing the buffered line would fail again at exit


def hold_standard_streams() -> None:
    """Open descriptors 0 to 2 if they are closed. Otherwise sockets and logs would get them, and printed text."""
    while (held := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(held)


def end_at_once(why: str) -> NoReturn:
    """End the process at once. The next start recovers what is not on disk."""
    print(f"isthmus broker: ended at once: {why}; the next start recovers its logs", file=sys.stderr, flush=True)
    os._exit(EXIT_FAILED)


def raise_file_limit() -> int:
    """Raise the limit of open files and connections to the maximum. Returns the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leave_files(given: dict[str, str], limit: int) -> None:
    """With a low limit of open files, limit connections so that the logs have enough files."""
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
        from .check_options import main as check_options

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
