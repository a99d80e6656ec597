"""Data directories: their managers, opened, killed and looked at."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.protocol.errors import KafkaError
from isthmus.runtime import Runtime

from .support import NOW_MS

TOPIC_ID = bytes(range(16))


def manager(files, path, config=None, wall_ms=lambda: NOW_MS):
    return LogManager(files, str(path), Runtime(random.Random(1), wall_ms, lambda: 0), config)


@contextlib.asynccontextmanager
async def opened(files, path, node_id=1, cluster_id=None, logs=True, **more):
    made = manager(files, path, **more)
    await made.open(node_id, cluster_id)
    if logs:
        await open_all(made, made.found())
    yield made
    await made.close()


async def open_all(made: LogManager, keys) -> None:
    """Raises the error of one that cannot be."""

    def check(each, log):
        if isinstance(log, KafkaError):
            raise log

    await made.open_logs([LogToOpen(*key, made.topic_id(*key) or TOPIC_ID, LogConfig()) for key in keys], check)


def killed(made: LogManager) -> None:
    """The process is gone; only its lock is given back."""
    made._release()


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir())
