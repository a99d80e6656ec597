"""One scenario asked of two brokers at once: their answers, what they left behind, and where the two are not equal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from . import error_codes
from .afterwards import read_back
from .differences import DIFFERENCES, Difference
from .normalise import normalised, unexplained
from .peer import ERROR_CODES, POLL_S, Case, Peer, Scenario
from .wire import api

SETTLED_TIMEOUT_S = 5.0


class Comparison:
    """Runs scenarios; `given` has by API and error code the scenarios in which stock Kafka gave it."""

    def __init__(self, ours: Peer, stock: Peer, prefix: str = "") -> None:
        self.ours = ours
        self.stock = stock
        self._prefix = prefix  # of the names of topics and groups
        self.given: dict[int, dict[int, set[str]]] = {}
        self.explained: set[Difference] = set()  # those of DIFFERENCES that were met
        self.done: set[tuple[str, int]] = set()  # scenarios and versions
        self._threads = ThreadPoolExecutor(2)

    def close(self) -> None:
        self._threads.shutdown()

    def differences(self, scenario: Scenario, version: int) -> list[str]:
        """What is not equal and not explained, one line for each place."""
        asked = [
            self._threads.submit(answers, peer, scenario, version, self._prefix) for peer in (self.ours, self.stock)
        ]
        wait(asked)  # both, since what is raised by one must not leave the other at work
        (actual, ours), (expected, stock) = (each.result() for each in asked)
        self.done.add((scenario.label, version))
        self.note_codes(scenario.key, scenario.label, expected)
        found = compared(scenario, actual, expected, self.explained)
        return found or self.differences_left(scenario, ours, stock)

    def note_codes(self, key: int, label: str, answer: Any) -> None:
        """Those that stock Kafka gave."""
        for code in codes_in(answer):
            self.given.setdefault(key, {}).setdefault(code, set()).add(label)

    def wrong_in_tables(self, cases: Iterable[tuple[Scenario, int]], more: Set[str] = frozenset()) -> list[str]:
        """What the tables say of these scenarios, and stock Kafka or the comparison did not, a line each.

        Those are the table of error codes and that of differences: what both brokers answer alike by now needs no
        explanation. more: what else they name that was asked of this pair. Skips the test unless all cases ran.
        """
        asked = {(scenario.label, version) for scenario, version in cases}
        if not asked <= self.done:
            pytest.skip("only some of the scenarios ran")
        labels = {*more, *(label for label, _ in asked)}
        unmet = [each for each in DIFFERENCES if each.scenario in labels and each not in self.explained]
        alike = [f"{each.path} does not differ in {each.scenario or 'any scenario'}" for each in unmet]
        return error_codes.wrong(self.given, labels) + alike

    def differences_left(self, scenario: Scenario, ours: Case, stock: Case) -> list[str]:
        """Of what the scenario left behind; stock Kafka may need a moment to get there."""
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while True:
            our_own, their_own = (normalised(read_back(case), case.peer) for case in (ours, stock))
            found = unexplained("Afterwards", our_own, their_own, scenario.label, self.explained)
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(POLL_S)


def answers(peer: Peer, scenario: Scenario, version: int, prefix: str = "") -> tuple[list[Any], Case]:
    """What a broker answers to a scenario, made comparable, and the case that was asked."""
    case = Case(peer, version, f"{prefix}{api(scenario.key).name.lower()}-v{version}-{scenario.label}")
    try:
        scenario.run(case)
    except OSError:
        peer.reconnect()  # what was not answered must not be in the way of the next scenario
        raise
    assert case.answers, "a scenario that compares nothing"
    return [normalised(answer, peer) for answer in case.answers], case


def compared(
    scenario: Scenario, actual: list[Any], expected: list[Any], explained: set[Difference] | None = None
) -> list[str]:
    """Differences of two brokers' answers that are not explained, with the number of the answer each is found in."""
    if len(actual) != len(expected):
        return [f"{len(actual)} answers of ours, {len(expected)} of stock Kafka"]
    title = api(scenario.key).name
    return [
        f"answer {number}: {line}"
        for number, pair in enumerate(zip(actual, expected, strict=True), 1)
        for line in unexplained(title, *pair, scenario.label, explained)
    ]


def codes_in(answer: Any) -> Iterator[int]:
    """All error codes of an answer; those of what was asked by the way, by another API, do not count."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes_in(each)
    elif isinstance(answer, dict) and not any(key[0].isupper() for key in answer):
        for key, value in answer.items():
            if key in ERROR_CODES and value:
                yield value
            else:
                yield from codes_in(value)
