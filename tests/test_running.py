"""How async tests are run: what the runner gives, what pytest gives, and that an error comes out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.running import Test, in_loop, run_by

given: list[tuple[Any, ...]] = []


def runner(test: Test, tmp_path: str, seed: int = 1, **options: str) -> None:
    given.append((tmp_path, seed, options))
    in_loop(lambda: test("first", "second"))


def ask(run: Callable[..., None]) -> list[str]:
    return list(inspect.signature(run).parameters)


def test_the_runner_and_pytest_give_what_is_theirs() -> None:
    @run_by(runner, limit="9")
    async def case(first: str, /, seed: int, other: int) -> None:
        """Some test."""
        given.append((first, seed, other))

    assert (ask(case), case.__doc__) == (["tmp_path", "seed", "other"], "Some test.")
    given.clear()
    case(tmp_path="folder", seed=7, other=8)
    assert given == [("folder", 7, {"limit": "9"}), ("first", 7, 8)]


def test_what_is_given_as_an_option_is_no_fixture() -> None:
    @run_by(runner, tmp_path="here")
    async def case(first: str, second: str, /) -> None:
        given.append((first, second))

    assert ask(case) == []
    given.clear()
    case()
    assert given == [("here", 1, {}), ("first", "second")]


def test_a_failed_assertion_is_the_tests() -> None:
    @run_by(in_loop)
    async def case() -> None:
        raise AssertionError("seen")

    with pytest.raises(AssertionError, match="seen"):
        case()
