"""`python -m isthmus.core_broker`: one broker in the foreground. With `check DIR` in front: its data directory checked.

Prints `ready HOST:PORT` once it serves. Ends in a controlled way on SIGTERM and SIGINT. What is wrong with the
command line or an option is one line and exit code 2; whatever else keeps it from starting, one line and exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import resource
import signal
import sys

import uvloop

from .. import runtime
from ..protocol.errors import KafkaError
from . import loggers
from .broker import Broker, StartError
from .config import BrokerConfig, ConfigError
from .storage.files import RealFiles

EXIT_FAILED, EXIT_USAGE = 1, 2
# A broker's objects live for a request or for ever: looking at the young ones often finds nothing.
GC_THRESHOLDS = (50_000, 20, 100)
CONNECTIONS_SHARE = 0.75  # of the files a process may open


def options(arguments: list[str] | None = None) -> dict[str, str]:
    """The broker options a command line gives."""
    parser = argparse.ArgumentParser(prog="isthmus broker", description="Run one broker in the foreground.")
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
    if parsed.data:
        given["log.dirs"] = parsed.data
    if parsed.metrics:
        given["metrics.listener"] = parsed.metrics
    if parsed.listen:
        given["listeners"] = ",".join(each if "://" in each else f"PLAINTEXT://{each}" for each in parsed.listen)
    return given


async def serve(config: BrokerConfig) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    files = RealFiles(config["file.pool.threads"])
    broker = Broker(config, runtime.system(), files)
    await broker.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    print(f"ready {broker.address}", flush=True)
    await stopping.wait()
    await broker.stop()
    files.close()


def raise_file_limit() -> int:
    """Let this process have as many files and connections as the system allows; gives how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leave_files(given: dict[str, str], limit: int) -> None:
    """Where the system allows few files, connections must not take those that the logs need."""
    most = int(limit * CONNECTIONS_SHARE)
    if limit > 0 and "max.connections" not in given and most < BrokerConfig()["max.connections"]:
        given["max.connections"] = str(max(most, 1))


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["check"]:
        from .checking.command import main as check

        return check(arguments[1:])
    limit = raise_file_limit()
    try:
        given = options(arguments)
        leave_files(given, limit)
        config = BrokerConfig(given)
        loggers.configure(config["log.format"])
        uvloop.run(serve(config))
    except ConfigError as error:
        print(f"isthmus broker: {error.message}", file=sys.stderr)
        return EXIT_USAGE
    except StartError as error:
        print(f"isthmus broker: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KafkaError as error:
        print(f"isthmus broker: {error.message}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
