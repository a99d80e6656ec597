"""Every version of every key that we serve, asked of our broker and of stock Kafka: the decoded answers are equal."""

from __future__ import annotations

import copy

import pytest

from .comparing import Comparison, answers, compared
from .peer import Peer, Scenario
from .scenarios import SCENARIOS
from .versions import STOCK
from .wire import api

# The error codes that one node of stock Kafka can be made to give: each must occur. What limits of groups give is in
# test_group_limits.py; what a restart or an option gives, in test_restart.py.
ERRORS: dict[int, tuple[int, ...]] = {
    0: (2, 3, 10, 17, 18, 21, 32, 45, 47, 53, 76, 87, 100),
    1: (1, 3, 6, 70, 71, 75, 100, 103, 106),
    2: (3, 35, 42, 75),
    3: (3, 17, 42, 100),
    8: (3, 12, 22, 25, 27, 69, 82, 100),
    9: (100,),
    10: (42,),
    11: (23, 24, 25, 26, 79, 82),
    12: (22, 24, 25, 27, 82),
    13: (24, 25, 82),
    14: (22, 23, 24, 25, 27, 82),
    15: (69,),
    18: (42, 129),
    19: (17, 36, 37, 38, 39, 40, 42, 44),
    20: (3, 42, 100),
    21: (1, 3, 17, 44),
    22: (42,),
    23: (3, 75),
    32: (3, 17, 42),
    33: (3, 17, 40, 42),
    37: (3, 37, 39, 42, 44),
    42: (68, 69),
    43: (3, 42, 84),
    44: (3, 17, 40, 42),
    47: (3, 24, 68, 69, 86),
    55: (3,),
    60: (114, 115),
    61: (3, 17),
    75: (3, 17, 42),
}
# What has no error to be asked for in these versions: the request carries nothing that could be wrong.
NO_ERROR_IN = {
    (10, 0): "every string names a group",
    **{(16, version): "no filters yet" for version in range(4)},
    **{
        (18, version): "an empty request; a version that is too high is in test_api_versions.py" for version in range(3)
    },
    (60, 0): "no endpoint type yet",
}


def cases() -> list[tuple[Scenario, int]]:
    return [(scenario, version) for scenario in SCENARIOS for version in scenario.versions]


def name(case: tuple[Scenario, int]) -> str:
    scenario, version = case
    return f"{api(scenario.key).name}-v{version}-{scenario.kind}-{scenario.label}"


@pytest.mark.parametrize("case", cases(), ids=name)
def test_answers_are_equal(case: tuple[Scenario, int], comparison: Comparison) -> None:
    assert comparison.differences(*case) == []


def test_every_version_of_every_key_has_a_success_and_an_error() -> None:
    have = {(scenario.key, version, scenario.kind) for scenario, version in cases()}
    missing = [
        (key, version, kind)
        for key, (low, high) in STOCK.items()
        for version in range(low, high + 1)
        for kind in ("success", "error")
        if (key, version, kind) not in have and not (kind == "error" and (key, version) in NO_ERROR_IN)
    ]
    assert missing == []


def test_every_error_code_has_occurred(comparison: Comparison) -> None:
    if len(comparison.done) < len({(scenario.label, version) for scenario, version in cases()}):
        pytest.skip("only some of the scenarios ran")
    missing = {key: set(codes) - comparison.codes[key] for key, codes in ERRORS.items()}
    assert {key: codes for key, codes in missing.items() if codes} == {}


def test_control_a_changed_answer_is_seen(stock: Peer) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "reads_what_was_appended")
    expected, _ = answers(stock, scenario, 17, "control-")
    actual = copy.deepcopy(expected)
    assert compared(scenario, actual, expected) == []
    actual[0]["responses"][0]["partitions"][0]["high_watermark"] += 1
    assert len(compared(scenario, actual, expected)) == 1


def test_control_a_missing_or_wrong_option_is_seen(stock: Peer) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "creates_topics")
    expected, _ = answers(stock, scenario, 7, "control-")
    options = expected[0]["topics"][0]["configs"]
    for wrong in (options[:5], [{**each, "value": "0"} for each in options], [*options, {"name": "only.ours"}]):
        actual = [{**expected[0], "topics": [{**expected[0]["topics"][0], "configs": wrong}]}, *expected[1:]]
        assert compared(scenario, actual, expected) != []
    own = [*options, {"name": "durability"}]  # is explained
    actual = [{**expected[0], "topics": [{**expected[0]["topics"][0], "configs": own}]}, *expected[1:]]
    assert compared(scenario, actual, expected) == []
