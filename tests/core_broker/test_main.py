"""What the command line makes of the system that it runs on."""

from __future__ import annotations

import pytest

from isthmus.core_broker.__main__ import leave_files
from isthmus.core_broker.config import BrokerConfig


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
