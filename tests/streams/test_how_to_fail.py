"""The code of docs/how-to/records-that-fail.md, run as it stands there."""

from pathlib import Path

from tests.pages import names_of

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/records-that-fail.md"


def test_what_the_page_says_of_dead_letters() -> None:
    names_of(PAGE)["test_what_is_no_payment_stops_nothing"]()
