"""The code of docs/how-to/ask-an-agent.md, run as it stands there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.streams import StreamsError
from isthmus.streams.driver import TestDriver
from tests.pages import names_of

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/ask-an-agent.md"


@pytest.fixture
def page() -> dict[str, Any]:
    return names_of(PAGE)


def test_the_page_tests_itself(page: dict[str, Any]) -> None:
    asyncio.run(page["test_one_agent"]())


def test_pages_programs_and_agents_are_answered(page: dict[str, Any]) -> None:
    with TestDriver(page["app"], partitions={"orders": 3}) as driver:
        assert driver.page("/orders/x/4/").json() == {"owes": 4}
        assert driver.run(page["order_all"]()) == (9, [10, 2])
        assert driver.run(page["check_out"].ask({"shop": "y", "total": 5})) == {"owes": 7}
        assert driver.table("totals") == {"x": 10, "y": 7}
        with pytest.raises(StreamsError, match="within 0 s"):
            driver.run(page["bill"].ask(page["Order"]("x", 1), timeout=0))
