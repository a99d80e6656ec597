"""The code of docs/how-to/datacenters.md, run as it stands there."""

from pathlib import Path
from typing import Any

import pytest

from isthmus.streams.driver import TestDriver, TestRecord
from isthmus.streams.engine.origin import HEADER, Copy, Origin
from tests.pages import names_of
from tests.running import in_loop, run_by

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/datacenters.md"


@pytest.fixture
def page() -> dict[str, Any]:
    return names_of(PAGE)


@run_by(in_loop)
async def test_the_page_tests_itself(page: dict[str, Any]) -> None:
    await page["test_a_datacenter_that_is_cut_off_is_missing"]()


@run_by(in_loop)
async def test_what_the_page_says_comes_out(page: dict[str, Any]) -> None:
    counts = TestDriver(page["app"], copies={"fra.orders": Copy("fra", "orders")})
    for topic in ("fra.orders", "nyc.orders", "fra.orders"):
        counts.send(topic, value=b"1")
    assert counts.table("orders-by-datacenter") == {"fra": 2, "hub": 1}
    counts.close()

    bills = TestDriver(page["bridged"])
    headers = ((HEADER, Origin("fra", "orders", 0, 7).encode()),)
    bills.send("orders-of-all", *[TestRecord(b'{"total": 30}', b"k", 0, headers)] * 3)
    assert list(bills.table("billed").values()) == [30]
    bills.close()
