"""The broker's own log: what a line is, and levels as Kafka's tools see and change them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from isthmus.core_broker.loggers import LEVELS, PARTS, ROOT, TRACE, JsonFormatter, Loggers, Operation, TextFormatter
from isthmus.protocol.errors import ErrorCode, KafkaError

NAME = "isthmus.core_broker.storage"
SET, DELETE = Operation.SET, Operation.DELETE


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    for name in PARTS:
        logging.getLogger(name)
    before = {name: logging.getLogger(name).level for name in PARTS}
    root = logging.root.level
    logging.root.setLevel(logging.INFO)
    yield
    logging.root.setLevel(root)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord(NAME, logging.WARNING, __file__, 1, message, arguments, None, **more)  # type: ignore[arg-type]


def test_a_json_line_has_what_was_said_and_what_was_given_besides() -> None:
    made = record("%s is offline: %s", "t-0", 'a "disk"\nfailed')
    made.created = 1_700_000_000.25
    made.partition = 0
    assert json.loads(JsonFormatter().format(made)) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARN",
        "logger": NAME,
        "message": 't-0 is offline: a "disk"\nfailed',
        "partition": 0,
    }
    assert "\n" not in JsonFormatter().format(made)


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["exception"]
    assert TextFormatter().format(record("said")).endswith(" WARNING said")


def test_levels_hold_for_what_is_below_until_they_are_removed() -> None:
    told = []
    loggers = Loggers(lambda: told.append(1))
    below = logging.getLogger(f"{NAME}.log")
    loggers.alter([(NAME, SET, "TRACE")])
    assert below.isEnabledFor(TRACE)
    assert dict(loggers.describe())[below.name] == "TRACE"
    assert dict(loggers.describe())["isthmus.core_broker.server"] == "INFO"
    loggers.alter([(NAME, DELETE, None), (ROOT, SET, "ERROR")])
    assert not below.isEnabledFor(logging.WARNING)
    assert dict(loggers.describe())[below.name] == "ERROR"
    assert len(told) == 2


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_told_as_it_was_set(level: str) -> None:
    loggers = Loggers()
    loggers.alter([(NAME, SET, level)])
    assert dict(loggers.describe())[NAME] == level


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG, "nobody does not exist"),
        ((NAME, SET, "info"), ErrorCode.INVALID_CONFIG, "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ((ROOT, DELETE, None), ErrorCode.INVALID_REQUEST, "root logger is not allowed"),
        ((NAME, Operation.APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation"),
        ((NAME, 7, "INFO"), ErrorCode.INVALID_REQUEST, "operation type 7"),
    ],
)
def test_of_changes_of_which_one_is_wrong_none_is_made(change: tuple, code: ErrorCode, says: str) -> None:
    loggers = Loggers()
    before = loggers.describe()
    with pytest.raises(KafkaError, match=says) as caught:
        loggers.alter([(NAME, SET, "FATAL"), change])
    assert caught.value.code == code
    assert loggers.describe() == before


def test_what_has_said_nothing_yet_is_told() -> None:
    names = [name for name, _ in Loggers().describe()]
    assert set(PARTS) < set(names)
    assert names == [*sorted(names[:-1]), ROOT]
