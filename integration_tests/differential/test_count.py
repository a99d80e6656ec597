"""There are 900 scenarios at the least, each of its own; every error code is given by one of them or has a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from isthmus.protocol.errors import ErrorCode

from .absent_codes import ABSENT, NOWHERE
from .catalogue import ALL
from .error_codes import FIRST, GIVEN, NEWER
from .versions import STOCK

LEAST = 900
NO_CODES = {16, 46}  # APIs whose answers have codes, none of which one node gives


def test_there_are_enough_scenarios_and_no_two_are_the_same() -> None:
    twice = [label for label, count in Counter(scenario.label for scenario in ALL).items() if count > 1]
    assert twice == []
    assert len(ALL) >= LEAST, f"{len(ALL)} scenarios"


def test_every_api_has_its_error_codes() -> None:
    assert GIVEN.keys() | NO_CODES == STOCK.keys()
    both = {key: ABSENT[key].keys() & GIVEN.get(key, {}).keys() for key in ABSENT}
    assert {key: codes for key, codes in both.items() if codes} == {}


def test_the_scenarios_that_give_codes_are_those_of_their_api() -> None:
    labels = {(scenario.key, scenario.label) for scenario in ALL}
    named = {(key, label) for key, codes in GIVEN.items() for label in codes.values()}
    assert {each for each in named - labels if each[1] not in (FIRST, NEWER)} == set()
    assert f"def test_{NEWER}(" in Path(__file__).with_name("test_api_versions.py").read_text()


def test_every_error_code_is_given_or_has_a_reason() -> None:
    told = {code for table in (GIVEN, ABSENT) for codes in table.values() for code in codes}
    nowhere = [code for codes in NOWHERE.values() for code in codes]
    assert told & set(nowhere) == set()
    assert sorted({*told, *nowhere, ErrorCode.NONE}) == sorted(ErrorCode)
    assert len(nowhere) == len(set(nowhere))
