"""Tests that are async functions.

    @run_by(serve, fetch_max_bytes="1024")
    async def test_something(serving: Serving, /, caplog: pytest.LogCaptureFixture) -> None: ...

The runner, here `serve`, takes the test as its first argument and calls it with what stands before the `/`, from the
left, and no more than the test names. All else comes from pytest.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from inspect import Parameter, Signature, signature
from typing import Any

Test = Callable[..., Coroutine[Any, Any, None]]


def run_by(runner: Callable[..., Any], **options: Any) -> Callable[[Test], Callable[..., None]]:
    """The test as a function that pytest takes. `options` are the runner's, and made once for all runs of the test.

    What the runner needs besides, its parameters without a default, it has from fixtures of that name. A parameter
    that both name, such as `seed`, is given to both.
    """
    _, *takes = (each for each in signature(runner).parameters.values() if each.kind is not Parameter.VAR_KEYWORD)
    needs = [each for each in takes if each.default is Parameter.empty and each.name not in options]

    def decorate(test: Test) -> Callable[..., None]:
        parameters = signature(test).parameters.values()
        asked = [each for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY]
        made_count = len(parameters) - len(asked)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            own = {each.name: given[each.name] for each in asked}
            shared = {each.name: given[each.name] for each in takes if each.name in given}
            runner(lambda *made: test(*made[:made_count], **own), **options, **shared)

        names = dict.fromkeys(each.name for each in (*needs, *asked))
        wanted = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
        run.__signature__ = Signature(wanted)  # type: ignore[attr-defined]
        return run

    return decorate


def in_loop(test: Test) -> None:
    """A runner: the test on a loop of its own, given nothing."""
    asyncio.run(test())
