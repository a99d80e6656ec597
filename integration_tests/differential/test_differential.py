"""Every version of every key that we serve, asked of our broker and of stock Kafka: the decoded answers are equal."""

from __future__ import annotations

import copy

import pytest

from .comparing import Comparison, answers, compared
from .differences import OWN_OPTIONS
from .peer import Peer, Scenario
from .requests import fill
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
    (46, 0): "what is not there is left out",
    (60, 0): "no endpoint type yet",
    **{(66, version): "what is no state is named, and is no error" for version in range(2)},
    (74, 0): "no kinds of resources yet",
}

# What one node, which is broker, controller and the only voter, cannot be asked without an error.
NO_SUCCESS_OF = {
    64: "a broker that is gone",
    80: "a controller that follows",
    81: "another voter",
    94: "a controller that is gone",
}

EVERYWHERE = ""  # what the table of differences has for all scenarios, not for one


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
        if (key, version, kind) not in have
        and not (kind == "error" and (key, version) in NO_ERROR_IN)
        and not (kind == "success" and key in NO_SUCCESS_OF)
    ]
    assert missing == []


def test_the_tables_are_what_was_told(comparison: Comparison) -> None:
    assert comparison.wrong_in_tables(cases(), {EVERYWHERE}) == []


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


def test_control_an_option_of_ours_is_told_as_kafkas_but_for_its_default(stock: Peer) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "describes_all_options_of_a_broker_that_we_have")
    expected, _ = answers(stock, scenario, 4, "control-")
    for change in ({"read_only": None}, {"config_type": 0}):
        for name in OWN_OPTIONS:
            actual = copy.deepcopy(expected)
            [row] = [each for each in actual[0]["results"][0]["configs"] if each["name"] == name]
            row.update(change)
            is_own = bool(change.keys() & set(OWN_OPTIONS[name]))
            assert bool(compared(scenario, actual, expected)) is not is_own, (name, change)


def test_control_what_is_left_behind_is_seen(comparison: Comparison) -> None:
    scenario = next(each for each in SCENARIOS if each.label == "appends")
    (_, ours), (_, theirs) = (answers(peer, scenario, 13, "left-") for peer in (comparison.ours, comparison.stock))
    assert comparison.differences_left(scenario, ours, theirs) == []
    fill(ours, ours.id_of(ours.name))
    assert comparison.differences_left(scenario, ours, theirs) != []
