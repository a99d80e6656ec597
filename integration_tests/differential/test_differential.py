"""Every version of every key that we serve, asked of our broker and of stock Kafka: the decoded answers are equal."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from .normalise import normalised, unexplained
from .peer import Case, Peer, Scenario
from .scenarios import SCENARIOS
from .versions import STOCK
from .wire import api

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


def answers(peer: Peer, scenario: Scenario, version: int, prefix: str = "") -> list[Any]:
    case = Case(peer, version, f"{prefix}{api(scenario.key).name.lower()}-v{version}-{scenario.label}")
    scenario.run(case)
    assert case.answers, "a scenario that compares nothing"
    return [normalised(answer, peer) for answer in case.answers]


def compared(scenario: Scenario, actual: list[Any], expected: list[Any]) -> list[str]:
    """What is not equal and not explained, with the number of the answer it is found in."""
    if len(actual) != len(expected):
        return [f"{len(actual)} answers of ours, {len(expected)} of stock Kafka"]
    title = api(scenario.key).name
    return [
        f"answer {number}: {line}"
        for number, pair in enumerate(zip(actual, expected, strict=True), 1)
        for line in unexplained(title, *pair, scenario.label)
    ]


@pytest.mark.parametrize("case", cases(), ids=name)
def test_answers_are_equal(case: tuple[Scenario, int], ours: Peer, stock: Peer) -> None:
    scenario, version = case
    expected = answers(stock, scenario, version)
    assert compared(scenario, answers(ours, scenario, version), expected) == []


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


def test_control_a_changed_answer_is_seen(stock: Peer) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "reads_what_was_appended")
    expected = answers(stock, scenario, 17, "control-")
    actual = copy.deepcopy(expected)
    assert compared(scenario, actual, expected) == []
    actual[0]["responses"][0]["partitions"][0]["high_watermark"] += 1
    assert len(compared(scenario, actual, expected)) == 1


def test_control_a_missing_or_wrong_option_is_seen(stock: Peer) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "creates_topics")
    expected = answers(stock, scenario, 7, "control-")
    options = expected[0]["topics"][0]["configs"]
    for wrong in (options[:5], [{**each, "value": "0"} for each in options], [*options, {"name": "only.ours"}]):
        actual = [{**expected[0], "topics": [{**expected[0]["topics"][0], "configs": wrong}]}, *expected[1:]]
        assert compared(scenario, actual, expected) != []
    own = [*options, {"name": "durability"}]  # is explained
    actual = [{**expected[0], "topics": [{**expected[0]["topics"][0], "configs": own}]}, *expected[1:]]
    assert compared(scenario, actual, expected) == []
