"""Runs a worker until a signal, and says by its exit code how it ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import logging.config
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvloop

from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ...readiness import Readiness
from ..api.app import App
from ..errors import AppError, StreamsError
from ..runtime.process import serve

EXIT_FAILED, EXIT_CONFIG = 1, 2
STOP_S = 5.0  # after a signal, for the current event and the last checkpoint
# Events live for a batch, and rows for long: frequent collections of young objects find nothing.
GC_THRESHOLDS = (50_000, 20, 100)
FORMAT = "%(asctime)s %(levelname)s %(message)s"
LEVELS = ("critical", "crit", "error", "warn", "warning", "info", "debug")


def set_up_logging(app: App, level: str = "info", file: str | None = None) -> None:
    """To stderr or a file, or as the app's `logging_config` says."""
    conf = app.conf
    if conf.logging_config is not None:
        logging.config.dictConfig(conf.logging_config)
    else:
        level = "critical" if level.lower() == "crit" else level
        logging.basicConfig(level=level.upper(), format=FORMAT, filename=file)
    for handler in conf.loghandlers:
        logging.getLogger().addHandler(handler)
    if conf.worker_redirect_stdouts:
        number = logging.getLevelNamesMapping().get(conf.worker_redirect_stdouts_level.upper(), logging.WARNING)
        sys.stdout = _ToLog(number)


class _ToLog:
    """A text stream whose lines go to the log."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            logging.getLogger("isthmus.streams.stdout").log(self._level, "%s", line)
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def banner(app: App, bootstrap: str, version: str) -> list[tuple[str, str]]:
    """What a worker says of itself at its start."""
    conf = app.conf
    said = [
        ("id", app.id),
        ("brokers", bootstrap),
        ("guarantee", f"{conf.processing_guarantee}, a commit every {conf.broker_commit_interval:g} s"),
        ("store", conf.store),
        ("web", conf.canonical_url if conf.web_enabled else "off"),
        ("pid", str(os.getpid())),
        ("host", socket.gethostname()),
        ("isthmus", version),
    ]
    if conf.store != "memory://":
        said.insert(4, ("tables", str(conf.tables_path.absolute())))
    return said


def run_worker(
    app: App, readiness: Readiness, *, bootstrap: str | None = None, name: str | None = None, quiet: bool = False
) -> int:
    """The exit code: 0 after a signal, 1 for what another start may mend, 2 for what it cannot."""

    def ready(works: str) -> None:
        if not quiet:
            print(f"ready {works}", flush=True)
        readiness.tell(works)
        readiness.tell_where_asked()
        readiness.beat(asyncio.get_running_loop())
        gc.collect()
        gc.freeze()  # modules and the app's declarations
        gc.set_threshold(*GC_THRESHOLDS)

    try:
        uvloop.run(until_signal(lambda stopping: serve(app, stopping, ready, bootstrap=bootstrap, name=name), app))
    except AppError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except (StreamsError, KafkaError, ClientError, OSError) as error:
        said = str(error).removeprefix(f"app {app.id}: ")
        print(f"error: app {app.id}: {said}", file=sys.stderr)
        return EXIT_FAILED
    return 0


async def until_signal(begin: Callable[[asyncio.Event], Any], app: App) -> None:
    """Run until SIGTERM or SIGINT. What is not done within STOP_S is done by the next run."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    serving = loop.create_task(begin(stopping))

    def stop() -> None:
        works = app.worker is not None
        stopping.set()
        loop.call_later(STOP_S if works else 0, serving.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()
    elif app.worker is not None:
        logging.warning("app %s was stopped before its last checkpoint was written", app.id)
