"""What the command line makes of the system that it runs on."""

from __future__ import annotations

import pytest

from isthmus.core_broker.__main__ import leave_files, options
from isthmus.core_broker.config import BrokerConfig, ConfigError


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (256, {"max.connections": "192", "max.open.log.files": "36"}),
        (20_000, {"max.connections": "15000", "max.open.log.files": "2857"}),
        (60_000, {"max.open.log.files": "8571"}),
        (1_000_000, {}),
        (-1, {}),  # no limit
        (16, {"max.connections": "12", "max.open.log.files": "8"}),
    ],
)
def test_connections_and_logs_share_the_files_that_the_system_allows(limit, expected):
    given: dict[str, str] = {}
    leave_files(given, limit)
    assert given == expected
    BrokerConfig(given)


def test_what_was_asked_for_stays():
    given = {"max.connections": "5000", "max.open.log.files": "9000"}
    leave_files(given, 256)
    assert given == {"max.connections": "5000", "max.open.log.files": "9000"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--data", ""], "--data"),  # of a variable that is not set
        (["--data="], "--data"),
        (["--data", "d", "--metrics", ""], "--metrics"),
        (["--data", "d", "--set", "log.dirs=e"], "log.dirs"),
        (["--data", "d", "--listen", ":1", "--set", "listeners=PLAINTEXT://:2"], "listeners"),
        (["--data", "d", "--metrics", ":1", "--set", "metrics.listener=:2"], "metrics.listener"),
    ],
)
def test_nothing_that_was_said_is_left_out_in_silence(arguments, named):
    with pytest.raises(ConfigError, match=named):
        options(arguments)
    assert options(["--data", "d", "--set", "listeners=:2"]) == {"log.dirs": "d", "listeners": ":2"}
