"""The broker's own log: as text or JSON lines, each part of the broker at a level that can be changed while it runs.

Levels are changed as Kafka's are (KIP-412): a request to alter the configs of the resource BROKER_LOGGER, such as
`kafka-configs --entity-type broker-loggers` sends, until the broker stops. Parts are named like their modules; the
level of a part holds for all below it that have none of their own.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import IntEnum

from ..protocol.errors import ErrorCode, KafkaError

ROOT = "root"
REQUESTS = "isthmus.core_broker.requests"  # at DEBUG a line for each request that is answered
PARTS = (  # what is told even before it has said anything
    "isthmus.core_broker",
    "isthmus.core_broker.broker",
    "isthmus.core_broker.cluster",
    "isthmus.core_broker.coordinators",
    "isthmus.core_broker.metrics",
    "isthmus.core_broker.replication",
    REQUESTS,
    "isthmus.core_broker.server",
    "isthmus.core_broker.storage",
)
TRACE = 5  # below Python's DEBUG, which is 10
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
NAMES = {number: name for name, number in LEVELS.items()}
STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Operation(IntEnum):
    """What is done to a level, numbered as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what `extra` gave, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": NAMES.get(record.levelno, record.levelname),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in STANDARD and name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For people: time, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


FORMATS: dict[str, Callable[[], logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def configure(form: str) -> None:
    """Log to stderr in one of FORMATS, from INFO on. For the process; once a start."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.INFO)
    for name in PARTS:
        logging.getLogger(name)


class Loggers:
    """The levels of a process' loggers, read and changed. changed: called after a change."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed

    def describe(self) -> list[tuple[str, str]]:
        """(logger, level that holds for it), by name."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name in [*known, *PARTS] if isinstance(known.get(name, logging.root), logging.Logger))
        return [(name, _level(logging.getLogger(name))) for name in dict.fromkeys(names)] + [
            (ROOT, _level(logging.root))
        ]

    def check(self, changes: Sequence[tuple[str, int, str | None]]) -> None:
        """Whether (logger, operation, level) may be done. Raises KafkaError, as Kafka in its words."""
        known = dict(self.describe())
        for name, operation, level in changes:
            match operation:
                case Operation.SET:
                    _check_exists(name, known)
                    if level not in LEVELS:
                        raise KafkaError(
                            ErrorCode.INVALID_CONFIG,
                            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                            f"Valid log levels are {', '.join(LEVELS)}",
                        )
                case Operation.DELETE:
                    _check_exists(name, known)
                    if name == ROOT:
                        raise KafkaError(
                            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
                        )
                case _:
                    wrong = f"Unknown operation type {operation}"
                    if operation in (Operation.APPEND, Operation.SUBTRACT):
                        wrong = f"{Operation(operation).name} operation"
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"{wrong} is not allowed for the BROKER_LOGGER resource"
                    )

    def alter(self, changes: Sequence[tuple[str, int, str | None]]) -> None:
        """Do all of them, or none. Raises KafkaError."""
        self.check(changes)
        for name, operation, level in changes:
            logger = logging.root if name == ROOT else logging.getLogger(name)
            logger.setLevel(LEVELS[level or ""] if operation == Operation.SET else logging.NOTSET)
        self._changed()


def _check_exists(name: str, known: dict[str, str]) -> None:
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def _level(logger: logging.Logger) -> str:
    """The nearest of our names at or above a logger's level: Python has numbers, and other programs' between ours."""
    number = logger.getEffectiveLevel()
    return NAMES[min((each for each in NAMES if each >= number), default=logging.CRITICAL)]
