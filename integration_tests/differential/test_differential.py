"""Every version of every key that we serve, asked of our broker and of stock Kafka: the decoded answers are equal."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest

from . import admin, data, groups
from .normalise import normalised, without_differences
from .peer import Case, Peer, Scenario
from .versions import STOCK
from .wire import api

SCENARIOS: list[Scenario] = [*data.SCENARIOS, *groups.SCENARIOS, *admin.SCENARIOS]
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
    return [
        (scenario, version)
        for scenario in SCENARIOS
        for version in range(STOCK[scenario.key][0], STOCK[scenario.key][1] + 1)
        if scenario.since <= version <= scenario.until
    ]


def name(case: tuple[Scenario, int]) -> str:
    scenario, version = case
    return f"{api(scenario.key).name}-v{version}-{scenario.kind}-{scenario.label}"


def answers(peer: Peer, scenario: Scenario, version: int, prefix: str = "") -> list[Any]:
    case = Case(peer, version, f"{prefix}{api(scenario.key).name.lower()}-v{version}-{scenario.label}")
    scenario.run(case)
    assert case.answers, "a scenario that compares nothing"
    return [normalised(answer, peer) for answer in case.answers]


@pytest.mark.parametrize("case", cases(), ids=name)
def test_answers_are_equal(case: tuple[Scenario, int], ours: Peer, stock: Peer) -> None:
    scenario, version = case
    expected = answers(stock, scenario, version)
    actual = answers(ours, scenario, version)
    title = api(scenario.key).name
    pairs = [without_differences(title, *pair) for pair in zip(actual, expected, strict=True)]
    assert [pair[0] for pair in pairs] == [pair[1] for pair in pairs]


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
    scenario = next(each for each in data.SCENARIOS if each.label == "reads_what_was_appended")
    expected = answers(stock, scenario, 17, "control-")
    actual = copy.deepcopy(expected)
    assert operator.eq(*without_differences("Fetch", actual, expected))
    actual[0]["responses"][0]["partitions"][0]["high_watermark"] += 1
    assert operator.ne(*without_differences("Fetch", actual, expected))


def test_control_a_missing_or_wrong_option_is_seen(stock: Peer) -> None:
    scenario = next(each for each in admin.SCENARIOS if each.label == "creates_topics")
    [expected] = answers(stock, scenario, 7, "control-")
    options = expected["topics"][0]["configs"]
    for wrong in ([], options[:5], [{**each, "value": "0"} for each in options]):
        actual = {**expected, "topics": [{**expected["topics"][0], "configs": wrong}]}
        assert operator.ne(*without_differences("CreateTopics", actual, expected))
    more = [*options, {"name": "only.ours"}]
    actual = {**expected, "topics": [{**expected["topics"][0], "configs": more}]}
    assert operator.eq(*without_differences("CreateTopics", actual, expected))
