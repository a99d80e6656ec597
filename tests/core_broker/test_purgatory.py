"""Answers that wait: by event or deadline, once, bounded, with one timer for all."""

import asyncio

import pytest

from isthmus.core_broker.purgatory import Pending, Purgatory


class Clock:
    """Enough of a loop for a purgatory: a time, and timers that `run_until` calls."""

    def __init__(self):
        self.now = 100.0
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        timer = [when, callback, False]
        self.timers.append(timer)

        class Handle:
            def cancel(self):
                timer[2] = True

        return Handle()

    def run_until(self, now):
        while True:
            due = sorted((t for t in self.timers if not t[2] and t[0] <= now), key=lambda t: t[0])
            if not due:
                break
            self.now = max(self.now, due[0][0])
            due[0][2] = True
            due[0][1]()
        self.now = now


def with_clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    return clock


def test_event_wins_over_deadline_and_is_given_once(monkeypatch):
    clock = with_clock(monkeypatch)
    given = []
    pending = Pending(lambda: "late")
    Purgatory(10).add(pending, 50)
    pending.when_done(given.append)
    assert pending.complete("early")
    assert not pending.complete("again")
    clock.run_until(200)
    assert given == ["early"]


def test_deadlines_pass_in_order_on_one_timer(monkeypatch):
    clock = with_clock(monkeypatch)
    purgatory = Purgatory(10)
    given = []
    for name, ms in (("c", 300), ("a", 100), ("b", 200)):
        purgatory.add(Pending(lambda name=name: name), ms).when_done(given.append)
    assert len([t for t in clock.timers if not t[2]]) == 1
    clock.run_until(100.25)
    assert given == ["a", "b"]
    clock.run_until(101)
    assert given == ["a", "b", "c"]
    assert len(purgatory) == 0


def test_past_the_bound_a_pending_is_answered_at_once(monkeypatch):
    with_clock(monkeypatch)
    purgatory = Purgatory(2)
    first, second, third = (Pending(lambda: "expired") for _ in range(3))
    purgatory.add(first, 1000)
    purgatory.add(second, 1000)
    assert purgatory.add(third, 1000).done
    assert third.answer == "expired"
    first.complete("event")
    assert not purgatory.add(Pending(lambda: "expired"), 1000).done


def test_no_time_to_wait_means_an_answer_at_once(monkeypatch):
    with_clock(monkeypatch)
    assert Purgatory(2).add(Pending(lambda: "expired"), 0).answer == "expired"


def test_cleanup_runs_once_and_done_pendings_hold_nothing(monkeypatch):
    with_clock(monkeypatch)
    cleaned = []
    pending = Pending(lambda: "late", lambda: cleaned.append(1))
    Purgatory(2).add(pending, 1000).when_done(lambda answer: None)
    pending.complete(b"large answer")
    pending.abandon()
    assert cleaned == [1]
    assert pending.answer is None


def test_abandoned_pending_tells_nobody(monkeypatch):
    with_clock(monkeypatch)
    given = []
    pending = Purgatory(2).add(Pending(lambda: "late"), 1000)
    pending.when_done(given.append)
    pending.abandon()
    assert given == []
    assert pending.done


def test_close_expires_what_waits(monkeypatch):
    with_clock(monkeypatch)
    purgatory = Purgatory(5)
    given = []
    for n in range(3):
        purgatory.add(Pending(lambda n=n: n), 1000 - n).when_done(given.append)
    purgatory.close()
    assert given == [2, 1, 0]


def test_an_answer_that_cannot_be_made_does_not_hold_up_the_others(monkeypatch):
    clock = with_clock(monkeypatch)
    purgatory = Purgatory(10)

    def fail():
        raise RuntimeError("a bad one")

    purgatory.add(Pending(fail), 100)
    other = purgatory.add(Pending(lambda: "late"), 200)
    with pytest.raises(RuntimeError, match="a bad one"):
        clock.run_until(100.15)
    clock.run_until(101)
    assert other.done and other.answer == "late"
