"""Patterns of clients: whole texts, bounds, and a broker without the library."""

from __future__ import annotations

import sys

import pytest

from isthmus.core_broker.coordinators.patterns import (
    MAX_PATTERN_BYTES,
    MAX_PATTERN_LENGTH,
    MAX_REPETITIONS,
    STEPS_A_TURN,
    Pattern,
    PatternError,
    match_in_turns,
)


def test_it_matches_the_whole_text_or_nothing():
    pattern = Pattern("or.er|ü+")
    assert [pattern.matches(text) for text in ("order", "orders", "border", "üü", "")] == [
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+b", "(.*a){20}", "([a-z]+)*="])
def test_a_pattern_that_would_keep_pythons_re_busy_for_ever_is_answered(text):
    assert not Pattern(text).matches("a" * 249 + "!")


@pytest.mark.parametrize(
    "text",
    [
        "((a{100}){100}){100}",
        r"\pL{1000}",
        "a" * (MAX_PATTERN_LENGTH + 1),
        *(one * (MAX_REPETITIONS + 1) for one in ("a?", "a*", "a+", "a{0,1}")),
    ],
    ids=lambda text: text[:20],
)
def test_one_too_large_is_refused(text):
    with pytest.raises(PatternError):
        Pattern(text)


def test_the_bound_of_memory_lets_long_lists_of_topics_through():
    names = [f"{number:04}-topic-of-some-department" for number in range(1_000)]
    assert Pattern("|".join(names)).matches(names[-1]) and MAX_PATTERN_BYTES <= 1 << 20
    assert Pattern("|".join(f"{name[:4]}.*" for name in names)).matches(names[-1])


def test_patterns_are_not_kept_by_the_library():
    import re2

    Pattern("kept?")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_a_broker_without_the_library_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternError, match="google-re2"):
        Pattern("a")


def turns(pattern: str, names: list[str]) -> tuple[int, frozenset[str]]:
    """How often the others had a turn, and what was found."""
    count, steps = 0, match_in_turns(Pattern(pattern), names)
    while True:
        try:
            steps.send(None)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_the_names_of_a_pattern_and_a_turn_of_others_at_its_end():
    names = [f"{kind}-{number}" for number in range(10) for kind in ("order", "payment", "orders")]
    assert turns("order-.*", names) == (1, {name for name in names if name.startswith("order-")})
    assert turns("order-.*", []) == (1, frozenset())


def test_others_have_their_turn_after_a_few_names_of_a_hostile_pattern():
    hostile = "|".join(f"(.*[a-z]){{200}}{end}" for end in "bcdefghij")
    names = [f"{index:0249}" for index in range(50)]
    assert Pattern(hostile).size * 249 > STEPS_A_TURN
    assert turns(hostile, names) == (len(names) + 1, frozenset())
    assert turns("order-.*", names)[0] == 1
