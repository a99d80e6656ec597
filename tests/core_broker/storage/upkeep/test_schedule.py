"""Who is looked at when: what has changed, what has become due, and nobody else."""

from __future__ import annotations

import random

from isthmus.core_broker.storage.upkeep.schedule import STALE_SHARE, Schedule


def test_those_that_changed_come_once():
    due = Schedule[str]()
    due.note("b")
    due.note("a")
    due.note("b")
    assert due.take(0) == ["a", "b"]
    assert due.take(10**15) == []


def test_those_whose_time_has_come():
    due = Schedule[str]()
    due.put("late", 200)
    due.put("early", 100)
    due.put("never", None)
    assert due.take(99) == []
    assert due.take(100) == ["early"]
    assert due.take(100) == []
    assert due.take(500) == ["late"]


def test_the_last_word_counts():
    due = Schedule[str]()
    due.put("a", 100)
    due.put("a", 300)
    due.put("b", 100)
    due.put("b", None)
    assert due.take(200) == []
    due.put("a", 150)
    assert due.take(200) == ["a"]
    assert due.take(400) == []


def test_forgotten_ones_do_not_come():
    due = Schedule[str]()
    due.put("a", 100)
    due.note("a")
    due.forget("a")
    assert due.take(1000) == []


def test_against_a_table_that_looks_at_all():
    chance = random.Random(3)
    due, table = Schedule[int](), dict[int, int]()
    for now in range(2000):
        for _ in range(chance.randint(0, 3)):
            key, at = chance.randint(0, 30), chance.choice((None, now + chance.randint(0, 200)))
            due.put(key, at)
            table.pop(key, None)
            if at is not None:
                table[key] = at
        expected = sorted(key for key, at in table.items() if at <= now)
        for key in expected:
            del table[key]
        assert due.take(now) == expected
        assert len(due._heap) <= STALE_SHARE * 32 + 1
