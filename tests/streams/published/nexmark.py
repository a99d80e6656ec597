"""Events of the Nexmark benchmark as Beam's generator (`sdks/java/testing/nexmark`, package `generator`) makes them:
each a function of its id alone. What no query here looks at, as names and addresses, is not made.

The parameters are those of Beam's smoke suite: 100 generators with so many events each, one every 10 ms of event time,
and all of them begin at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

BASE_MS = 1_436_918_400_000  # 2015-07-15 00:00:00 UTC
GENERATORS, STEP_MS = 100, 10
EPOCH, PEOPLE, AUCTIONS = 50, 1, 3  # of so many events, so many are people and auctions; the others are bids
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
ACTIVE_PEOPLE, IN_FLIGHT, LEAD = 1000, 100, 10
HOT_SELLERS, HOT_AUCTIONS, HOT_BIDDERS, HOT_BATCH = 4, 2, 4, 100
NAME_MAX, DESCRIPTION_MAX, STRING_MIN = 20, 100, 3


class Random:
    """The generator that `java.util.Random` is documented to be."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & (1 << 48) - 1

    def bits(self, count: int) -> int:
        """Not negative, as all uses here need."""
        self._state = (self._state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        return self._state >> 48 - count

    def below(self, bound: int) -> int:
        if bound & -bound == bound:
            return bound * self.bits(31) >> 31
        while True:
            bits = self.bits(31)
            if bits - bits % bound + bound - 1 < 1 << 31:
                return bits % bound

    def fraction(self) -> float:
        return float((self.bits(26) << 27) + self.bits(27)) / (1 << 53)


class Made(NamedTuple):
    topic: str  # people, auctions or bids
    value: dict[str, Any]
    timestamp_ms: int


def _last_person(id: int) -> int:
    return id // EPOCH + min(id % EPOCH, PEOPLE - 1)


def _last_auction(id: int) -> int:
    epoch, offset = divmod(id, EPOCH)
    if offset < PEOPLE:
        return epoch * AUCTIONS - 1
    return epoch * AUCTIONS + min(offset - PEOPLE, AUCTIONS - 1)


def _some_person(id: int, chance: Random) -> int:
    people = _last_person(id) + 1
    active = min(people, ACTIVE_PEOPLE)
    return people - active + chance.below(active + LEAD)


def _some_auction(id: int, chance: Random) -> int:
    last = _last_auction(id)
    least = max(last - IN_FLIGHT, 0)
    return least + chance.below(last - least + 1 + LEAD)


def _hot(last: int) -> int:
    return last // HOT_BATCH * HOT_BATCH


def _price(chance: Random) -> int:
    return int(10.0 ** (chance.fraction() * 6.0) * 100.0 + 0.5)


def _skip_string(chance: Random, longest: int) -> None:
    for _ in range(STRING_MIN + chance.below(longest - STRING_MIN)):
        if chance.below(13):
            chance.below(26)


def _auction(id: int, chance: Random, at_ms: int) -> dict[str, Any]:
    seller = _hot(_last_person(id)) if chance.below(HOT_SELLERS) else _some_person(id, chance)
    category = FIRST_CATEGORY + chance.below(CATEGORIES)
    initial = _price(chance)
    horizon_ms = IN_FLIGHT * EPOCH // AUCTIONS * STEP_MS
    expires_ms = at_ms + 1 + chance.below(horizon_ms * 2)
    _skip_string(chance, NAME_MAX)
    _skip_string(chance, DESCRIPTION_MAX)
    return {
        "id": FIRST_ID + _last_auction(id),
        "seller": FIRST_ID + seller,
        "category": category,
        "reserve": initial + _price(chance),
        "at": at_ms,
        "expires": expires_ms,
    }


def _bid(id: int, chance: Random, at_ms: int) -> dict[str, Any]:
    auction = _hot(_last_auction(id)) if chance.below(HOT_AUCTIONS) else _some_auction(id, chance)
    bidder = _hot(_last_person(id)) + 1 if chance.below(HOT_BIDDERS) else _some_person(id, chance)
    return {"auction": FIRST_ID + auction, "bidder": FIRST_ID + bidder, "price": _price(chance), "at": at_ms}


def made(id: int, at_ms: int) -> Made:
    rest = id % EPOCH
    if rest < PEOPLE:
        return Made("people", {"id": FIRST_ID + _last_person(id), "at": at_ms}, at_ms)
    chance = Random(id)
    if rest < PEOPLE + AUCTIONS:
        return Made("auctions", _auction(id, chance, at_ms), at_ms)
    return Made("bids", _bid(id, chance, at_ms), at_ms)


def events(count: int, group: int = 1) -> Iterator[Made]:
    """`count` events of all generators, in the order in which they are sent. group: Beam's outOfOrderGroupSize; within
    so many of a generator's events they are shuffled, in a way that is always the same."""
    each = count // GENERATORS
    for number in range(each):
        sent = number // group * group + number * 953 % group
        for generator in range(GENERATORS):
            yield made(generator * each + sent, BASE_MS + sent * STEP_MS)
