"""`isthmus table get`: where a row is looked for, and what a worker that cannot answer says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from isthmus.client.partitioner import partition_for_key
from isthmus.console import tables
from isthmus.console.apps import as_id
from isthmus.deploy.errors import DeployError
from isthmus.streams import admin
from isthmus.streams.table_reader import TableRow, places_of, window_of


@pytest.mark.parametrize(
    ("said", "record_key"),
    [("fox", b"fox"), ("7", b"7"), ('["a", 1]', b'["a",1]'), ("[[1], {}]", b"[[1],{}]"), ("null", b"null")],
)
def test_a_row_is_where_records_with_its_key_are(said: str, record_key: bytes) -> None:
    partitions = 1_000
    found = places_of(said, partitions)
    assert partition_for_key(record_key, partitions) in found
    assert len(found) <= 6
    assert places_of(said, 1) == [0]


@pytest.mark.parametrize(
    ("key", "said", "is_meant"),
    [
        ("7", "7", True),
        (7, "7", True),
        (b"fox", "fox", True),
        (b"\xff\x00a", "\\xff\x00a", True),  # as it is shown
        (("a", (1, 2)), '["a", [1, 2]]', True),
        (("a", 1), '["a", 1]', True),
        (uuid.UUID(int=7), str(uuid.UUID(int=7)), True),
        (Decimal("1.50"), "1.50", True),
        ("foxes", "fox", False),
        (("a", "fox"), "fox", False),
    ],
)
def test_which_row_is_meant_by_what_was_typed(key: Any, said: str, is_meant: bool) -> None:
    assert tables._is(key, said) is is_meant


@pytest.mark.parametrize(
    ("made_by", "key", "value", "window"),
    [
        ({"step": "TimeWindowAggregate", "size_ms": 60}, ("fox", 120), [3, 130, 1], ("fox", 120, 180, 3)),
        ({"step": "SessionWindowAggregate", "gap_ms": 30}, (("a", 1), 120), [3, 130, 0], (("a", 1), 120, 130, 3)),
        ({"size_ms": 60, "step_ms": 60}, ("fox", 120), [3, 4], ("fox", 120, 180, [3, 4])),  # of an agent
        ({"step": "TableSource"}, ("fox", 120, 180), 3, ("fox", 120, 180, 3)),
        ({"step": "TableSource"}, ("fox", 120), 3, None),
        ({"step": "StreamJoin", "before_ms": 1, "after_ms": 1}, ("fox", 120), 3, None),
        ({}, ("fox", 120), 3, None),
    ],
)
def test_rows_of_windows_are_shown_as_windows(
    made_by: dict[str, Any], key: Any, value: Any, window: tuple[Any, ...] | None
) -> None:
    assert window_of(TableRow(0, "t", key, None, value), made_by) == window


@pytest.mark.parametrize(
    ("value", "in_json"),
    [
        (b"fox", "fox"),
        (7, 7),
        (None, None),
        (("fox", 60_000), ["fox", 60_000]),
        (
            {"at": datetime(2026, 3, 2, 9, tzinfo=UTC), "of": {Decimal("1.50"): [b"x"]}},
            {"at": "2026-03-02T09:00:00+00:00", "of": {"1.50": ["x"]}},
        ),
        ({("a", 1): {2}}, {"['a', 1]": [2]}),
    ],
)
def test_rows_are_json_for_programs_and_one_text_for_people(value: Any, in_json: Any) -> None:
    row = {"key": value, "value": value, "partition": 3}
    assert tables._shown(row, as_json=True) == {"key": in_json, "value": in_json, "partition": 3}
    text = json.dumps(in_json) if isinstance(in_json, (list, dict)) else in_json
    assert tables._shown(row, as_json=False) == {"key": text, "value": text, "partition": 3}


def test_json_has_null_for_numbers_that_it_has_not() -> None:
    row = {"key": 1.5, "value": [float("nan"), float("-inf")], "partition": 3}
    assert tables._shown(row, as_json=True) == {"key": 1.5, "value": [None, None], "partition": 3}


@pytest.mark.parametrize("said", ["shop.py:app", "shop:app", "apps/shop"])
def test_the_place_of_an_apps_code_is_no_id(said: str) -> None:
    assert as_id("shop-v2") == "shop-v2"
    with pytest.raises(DeployError, match=rf"'{said}' says where an app's code is: this command takes its id"):
        as_id(said)


@pytest.mark.parametrize("said", ["", "a shop", "x" * 201])
def test_what_cannot_be_an_id_is_told_so(said: str) -> None:
    with pytest.raises(DeployError, match=rf"app id '{said}' cannot be part of a topic's name"):
        as_id(said)


def test_a_table_that_is_not_there_is_told_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def connected(bootstrap: str) -> AsyncIterator[None]:
        yield None

    async def known(client: None, app_id: str) -> list[str]:
        return ["spent", "accounts"]

    monkeypatch.setattr(tables, "connected", connected)
    monkeypatch.setattr(admin, "tables", known)
    with pytest.raises(DeployError, match="app shop has no table account here: it has accounts, spent"):
        asyncio.run(tables._rows("shop", "account", "here"))


def test_a_worker_that_does_not_answer_says_why() -> None:
    with pytest.raises(DeployError, match=r"http://127\.0\.0\.1:9/ does not answer: .*refused"):
        tables._asked("http://127.0.0.1:9/", "counts", "fox", 5)


@pytest.mark.parametrize(("as_json", "most", "shown"), [(True, None, 1_001), (False, None, 1_000), (True, 2, 2)])
def test_a_program_gets_all_rows_unless_it_says_how_many(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, most: int | None, shown: int
) -> None:
    async def rows(*which: str) -> tuple[list[int], bool]:
        return list(range(1_001)), False

    got: list[int] = []
    monkeypatch.setattr(tables, "_rows", rows)
    monkeypatch.setattr(tables, "_show", lambda found, *how: got.extend(found))
    tables.scan("app", "t", most, "", as_json)
    assert len(got) == shown
