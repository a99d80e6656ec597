"""The watch over frames tells answers in order from answers out of order, however the bytes are cut."""

from __future__ import annotations

import random
import struct

from .observer import FrameObserver


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(correlation: int) -> bytes:
    return frame(struct.pack(">hhi", 3, 12, correlation) + b"body")


def answer(correlation: int) -> bytes:
    return frame(struct.pack(">i", correlation) + b"answer")


def feed(observer: FrameObserver, side: int, data: bytes, chance: random.Random) -> None:
    while data:
        size = chance.randint(1, len(data))
        observer.sent(1, side, data[:size])
        data = data[size:]


def test_answers_in_order_pass() -> None:
    observer = FrameObserver()
    chance = random.Random(1)
    for round_ in range(50):
        feed(observer, 0, request(3 * round_) + request(3 * round_ + 1) + request(3 * round_ + 2), chance)
        feed(observer, 1, answer(3 * round_) + answer(3 * round_ + 1) + answer(3 * round_ + 2), chance)
    assert not observer.violations and observer.requests == observer.answers == 150


def test_answers_out_of_order_and_answers_to_nothing_are_seen() -> None:
    observer = FrameObserver()
    observer.sent(1, 0, request(1) + request(2))
    observer.sent(1, 1, answer(2))
    assert "request 2 came before that to request 1" in observer.violations[0]
    observer = FrameObserver()
    observer.sent(7, 1, answer(5))
    assert "to no request" in observer.violations[0]
