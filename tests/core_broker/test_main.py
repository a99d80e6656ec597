"""What the command line makes of the system that it runs on."""

from __future__ import annotations

import pytest

from isthmus.core_broker.__main__ import leave_files, not_needed, options
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
    assert options(["--data", "d", "--set", "listeners=:2"]) == ({"log.dirs": "d", "listeners": ":2"}, {})


def test_a_file_of_options_counts_where_the_command_line_says_nothing(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("log.dir=a\nbroker.id=7\nnum.partitions=3\nrlmm.config.x = y\n")
    assert options(["--config", str(file)]) == (
        {"log.dir": "a", "broker.id": "7", "num.partitions": "3"}, {"rlmm.config.x": "y"}
    )  # fmt: skip
    given, _ = options(["--config", str(file), "--data", "d", "--set", "node.id=2", "--set", "num.partitions=4"])
    assert given == {"log.dirs": "d", "node.id": "2", "num.partitions": "4"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("num.partition=3\n", "num.partition: did you mean num.partitions"),
        ("a=\\u12\n", ":1: "),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_taken_is_named(tmp_path, text, named):
    file = tmp_path / "server.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        options(["--config", str(file)])
    assert str(file) in caught.value.message


def test_what_is_not_needed_is_one_table():
    config = BrokerConfig({"num.network.threads": "3", "num.partitions": "2", "log.preallocate": "true"})
    first, *rows = not_needed(config, {"my.own": "x"}).splitlines()
    assert "without effect" in first
    assert [row.split()[:2] for row in rows] == [
        ["log.preallocate", "true"],
        ["num.network.threads", "3"],
        ["my.own", "x"],
    ]
    assert not_needed(BrokerConfig({"num.partitions": "2"}), {}) == ""
