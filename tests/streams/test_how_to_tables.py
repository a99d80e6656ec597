"""The code of docs/how-to/tables.md, run as it stands there."""

from decimal import Decimal
from pathlib import Path

from isthmus.streams.driver import TestDriver
from tests.pages import names_of

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/tables.md"


def test_what_the_page_says_comes_out() -> None:
    page = names_of(PAGE)

    with TestDriver(page["app"]) as driver:
        for amount in (b"1.10", b"2.20"):
            driver.send("payments", key=b"ann", value=amount)
        driver.send("rates", key=b"usd", value=b"1.50")
        driver.send("orders", key=b"1", value=b'{"currency": "usd", "total": 6}')
        driver.send("settings", key=b"ann", value=b"100")
        driver.restart()
        account = page["Account"](owner="ann", balance=Decimal("3.30"))
        assert driver.table("accounts") == {"ann": account}
        assert driver.table("limits") == {"ann": 100} and driver.table("rates") == {"usd": Decimal("1.50")}
        assert [(sent.key, sent.value) for sent in driver.sent if sent.topic == "orders-in-euros"] == [(b"1", b'"4"')]
