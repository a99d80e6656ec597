"""The code of docs/how-to/windows-and-joins.md, run as it stands there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.streams.driver import TestDriver, TestRecord
from tests.pages import names_of

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/windows-and-joins.md"


@pytest.fixture
def page() -> dict[str, Any]:
    return names_of(PAGE)


def test_the_page_tests_itself(page: dict[str, Any]) -> None:
    asyncio.run(page["test_orders_are_counted"]())


def test_what_the_page_says_comes_out(page: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    def order(number: int, at_s: int, user: str = "u") -> TestRecord:
        value = {"id": number, "shop": "xy"[number % 2], "user": user, "total": 10 * number}
        return TestRecord(json.dumps(value).encode(), b"%d" % number, at_s * 1_000)

    async def scenario() -> dict[str, list[Any]]:
        driver = TestDriver(page["app"])
        driver.send("users", key=b"u", value=b'"Ada"', timestamp_ms=0)
        driver.send("shops", key=b"x", value=b'"Oslo"', timestamp_ms=0)
        driver.send("orders", *[order(1, 10), order(1, 11), order(2, 20, "nobody")])
        driver.send("payments", key=b"1", value=b'{"order": 1}', timestamp_ms=30_000)
        driver.send("orders", *[order(3, 75), order(4, 5), order(5, 9_000)])
        driver.send("payments", key=b"9", value=b'{"order": 9}', timestamp_ms=9_000_000)
        driver.send("users", key=b"w", value=b'"Bo"', timestamp_ms=9_000_000)
        for at_s in (1, 2, 61, 400):
            driver.send("carts", key=b"u", value=b'{"items": 2}', timestamp_ms=at_s * 1_000)
        driver.send("questions", key=b"u", value=b"null", timestamp_ms=3_000)
        driver.send("views", key=b"u", value=b"{}", timestamp_ms=4_000)
        clicks = [TestRecord(b'{"page": "%s", "ms": %d}' % (page, n)) for n, page in enumerate((b"a", b"b", b"a"))]
        driver.send("clicks", *clicks)
        driver.advance(10)
        driver.advance(10)  # views and carts have nothing to read
        tables.update({name: driver.table(name) for name in ("visits", "times")})
        driver.close()
        found: dict[str, list[Any]] = {}
        for sent in driver.sent:
            if sent.topic.endswith("-repartition"):
                continue
            found.setdefault(sent.topic, []).append((sent.key, json.loads(sent.value or b"null")))
        return found

    tables: dict[str, Any] = {}
    found = asyncio.run(scenario())
    counts = [(key, result["start_ms"], result["value"]) for key, result in found["orders-per-minute"]]
    assert counts == [(b"y", 0, 2), (b"x", 0, 1), (b"y", 60_000, 1)]
    assert [value["id"] for _, value in found["late-orders"]] == [4]
    assert [value["id"] for _, value in found["orders-once"]] == [1, 2, 3, 4, 5]
    assert [(value["id"], value["name"]) for _, value in found["orders-with-names"]][:3] == [
        (1, "Ada"), (1, "Ada"), (2, None),
    ]  # fmt: skip
    paid = sorted((value["order"]["id"], value["paid"]) for _, value in found["orders-with-payments"])
    assert paid == [(1, True), (1, True), (2, False), (3, False), (4, False)]
    assert sorted(key for key, _ in found["quiet-orders"]) == [b"1", b"2", b"3", b"4"]
    minutes = [(key, result["start_ms"], *result["value"].values()) for key, result in found["minutes-of-shops"]]
    assert minutes == [(b"y", 0, 2, 20, 1), (b"x", 0, 1, 20, 1), (b"y", 60_000, 1, 30, 1)]
    assert [(key, result["value"]) for key, result in found["largest-of-shops"]] == [
        (b"y", [1, 1]), (b"x", [2]), (b"y", [3]),
    ]  # fmt: skip
    assert found["open-orders-of-shops"][-2:] == [
        (b"x", {"n": 2, "total": 60, "largest": [4]}), (b"y", {"n": 3, "total": 90, "largest": [5]}),
    ]  # fmt: skip
    assert found["rates"] == [(b"u", [0, 1, 2])]
    assert capsys.readouterr().out == "4 items in this minute\n" and tables["visits"] == {(b"u", 1_000, 61_000): 3}
    assert found["pages"] == [(b"a", {"ms_sum": 2, "ms_count": 2}), (b"b", {"ms_sum": 1, "ms_count": 1})]
    assert tables["times"] == {"a": 2, "b": 1}
    assert [(value["id"], value["city"]) for _, value in found["orders-with-cities"]] == [
        (1, None), (1, None), (2, "Oslo"), (3, None), (4, "Oslo"), (5, None),
    ]  # fmt: skip
