"""The page of differences that users read (docs/reference/differences.md) has what the comparison leaves out."""

from __future__ import annotations

from isthmus.core_broker.server.dispatch import DIFFERENCES as PAGE
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import APIS

from .differences import DIFFERENCES, INSTEAD, LEFT_OUT, Difference

KEYS = {api.name: key for key, api in APIS.items()}
AFTERWARDS = "Afterwards"  # not an API, but what one of the others has left behind


def rows() -> list[tuple[Difference, str]]:
    """Differences that are more than an order or a wording, each with the API that it is of."""
    named = [(each, each.path.partition(".")[0]) for each in DIFFERENCES if each.how in (LEFT_OUT, INSTEAD)]
    return [(each, name) for each, name in named if name != AFTERWARDS]


def test_every_row_begins_with_the_name_of_its_api() -> None:
    assert [key for key, text in PAGE.items() if text.split()[0].rstrip(":") != APIS[key].name] == []


def test_every_api_that_differs_has_a_row() -> None:
    assert {name for _, name in rows() if KEYS[name] not in PAGE} == set()


def test_the_error_codes_that_kafka_does_not_give_are_named() -> None:
    codes = {
        (name, ErrorCode(each.ours).name)
        for each, name in rows()
        if each.how == INSTEAD and each.path.endswith("error_code") and each.ours
    }
    assert codes and {(name, code) for name, code in codes if code not in PAGE[KEYS[name]]} == set()
