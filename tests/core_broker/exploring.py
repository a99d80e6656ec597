"""Explores all states of a model, the nearest first: what `cluster/raft/model.py` and `replication/model.py` share.

A model says what a state's key is (equal for states from which the same can happen), and what can happen next. It
raises AssertionError for what must not.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Protocol


class Model(Protocol):
    def first_state(self) -> Any: ...

    def following(self, state: Any) -> Iterator[tuple[str, Any]]:
        """All that can happen next. Raises AssertionError for what must not."""

    def keys(self, state: Any) -> dict[int, Any]:
        """The keys of a state's parts, by their ids: what follows shares most of them."""

    def key(self, state: Any, keys: dict[int, Any]) -> Any: ...

    def reached(self, state: Any) -> dict[str, int]:
        """How far a history has come, of which the most is told."""


Progress = Callable[[int, int, int], None]  # states, depth, those to follow


@dataclass
class Found:
    """states: how many were seen. depth: of the longest way to one. ended: whether there are no more within the bounds.

    error, way: of the first state that must not be, and how it came about. most: of what was reached in one history.
    """

    states: int = 0
    depth: int = 0
    transitions: int = 0
    ended: bool = False
    error: str | None = None
    way: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)


def explore(model: Model, most_states: int | None = None, progress: Progress | None = None) -> Found:
    """All states within the bounds, or as many as are asked for, the nearest first."""
    found = Found()
    first = model.first_state()
    start = hash(model.key(first, {}))
    seen: dict[int, tuple[int, str]] = {start: (0, "")}  # how each was reached
    waiting: deque[tuple[Any, int, int]] = deque([(first, start, 0)])
    while waiting:
        if most_states is not None and len(seen) >= most_states:
            found.states = len(seen)
            return found
        state, key, found.depth = waiting.popleft()
        keys = model.keys(state)
        steps = model.following(state)
        while True:
            try:
                what, after = next(steps)
            except StopIteration:
                break
            except AssertionError as error:
                found.error, found.way, found.states = str(error), way_to(seen, key), len(seen)
                return found
            found.transitions += 1
            other = hash(model.key(after, keys))
            if other not in seen:
                seen[other] = (key, what)
                waiting.append((after, other, found.depth + 1))
                for name, count in model.reached(after).items():
                    found.most[name] = max(found.most.get(name, 0), count)
                if progress is not None and len(seen) % 20_000 == 0:
                    progress(len(seen), found.depth, len(waiting))
    found.states, found.ended = len(seen), True
    return found


def way_to(seen: dict[int, tuple[int, str]], key: int) -> list[str]:
    """What happened on the way to a state; what then failed is not among it."""
    way = []
    while key and seen[key][1]:
        key, what = seen[key]
        way.append(what)
    return way[::-1]


def main(name: str, doc: str | None, bounds_type: Any, run: Callable[[Any, int | None, Progress], Found]) -> int:
    """The command of a model. bounds_type: a dataclass of numbers, which are its options."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for each in fields(bounds_type):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=int, default=each.default)
    parser.add_argument("--states", type=int, help="stop after so many (default: all)")
    given = vars(parser.parse_args())
    most_states = given.pop("states")
    bounds = bounds_type(**given)
    began_s = time.monotonic()

    def progress(states: int, depth: int, waiting: int) -> None:
        print(f"{states} states, {waiting} to follow, depth {depth}, {time.monotonic() - began_s:.0f} s", flush=True)

    found = run(bounds, most_states, progress)
    for step in found.way:
        print(step)
    if found.error is not None:
        print(f"FAILED: {found.error}")
    what = "all" if found.ended else "the first"
    reached = ", ".join(f"{count} {name}" for name, count in found.most.items())
    print(
        f"{bounds}: {what} {found.states} states, {found.transitions} transitions, depth {found.depth}; up to "
        f"{reached}; {time.monotonic() - began_s:.0f} s"
    )
    return 1 if found.error is not None else 0
