"""The broker's own log, as text or JSON lines. The level of each logger can be changed while the broker runs.

Levels are changed as in Kafka (KIP-412): by a request to alter the configs of the resource BROKER_LOGGER, for example
by `kafka-configs --entity-type broker-loggers`. They last until the broker stops. Loggers are named like their modules;
a logger's level also applies to all below it that have none of their own.
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
REQUESTS = "isthmus.core_broker.requests"  # at DEBUG, a line for each answered request
PARTS = (  # listed even before they have logged anything
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
    """The operation on a level, numbered as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the fields of `extra`, and a traceback if any."""

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
    """For humans: time, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


FORMATS: dict[str, Callable[[], logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def configure(form: str) -> None:
    """Log to stderr in one of FORMATS, from INFO on. Applies to the process; called once at the start."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.INFO)
    for name in PARTS:
        logging.getLogger(name)


class Loggers:
    """Reads and changes the levels of the process' loggers. changed: called after a change."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed

    def describe(self) -> list[tuple[str, str]]:
        """(logger, effective level), by name."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name in [*known, *PARTS] if isinstance(known.get(name, logging.root), logging.Logger))
        return [(name, _level(logging.getLogger(name))) for name in dict.fromkeys(names)] + [
            (ROOT, _level(logging.root))
        ]

    def check(self, changes: Sequence[tuple[str, int, str | None]]) -> None:
        """Check (logger, operation, level) changes. Raises KafkaError with Kafka's messages."""
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
        """Make all changes, or none. Raises KafkaError."""
        self.check(changes)
        for name, operation, level in changes:
            logger = logging.root if name == ROOT else logging.getLogger(name)
            logger.setLevel(LEVELS[level or ""] if operation == Operation.SET else logging.NOTSET)
        self._changed()


def _check_exists(name: str, known: dict[str, str]) -> None:
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def _level(logger: logging.Logger) -> str:
    """The nearest level of ours at or above a logger's: Python's levels are numbers, and other code may use any."""
    number = logger.getEffectiveLevel()
    return NAMES[min((each for each in NAMES if each >= number), default=logging.CRITICAL)]
