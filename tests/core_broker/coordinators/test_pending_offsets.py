"""Offsets of transactions, over any log: what counts and what is pending is what the whole log says."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.coordinators.offsets import Offsets
from isthmus.core_broker.coordinators.runtime import NO_PRODUCER
from isthmus.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

GROUPS, PRODUCERS = "gh", (7, 8)
ALL_KEYS = [("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0)]


class Commit(NamedTuple):
    key: tuple[str, str, int]
    producer: int


class Tombstone(NamedTuple):
    key: tuple[str, str, int]


class Marker(NamedTuple):
    producer: int
    is_commit: bool


KEYS = st.sampled_from(ALL_KEYS)
STEPS = st.one_of(
    st.builds(Commit, KEYS, st.sampled_from((NO_PRODUCER, *PRODUCERS))),
    st.builds(Tombstone, KEYS),
    st.builds(Marker, st.sampled_from(PRODUCERS), st.booleans()),
)


def said_by(log: list[Commit | Tombstone | Marker], key: tuple[str, str, int]) -> tuple[int | None, set[int]]:
    """The offset of the record that counts for a key, and the producers with pending ones, looking back at the end."""
    first = max((at for at, step in enumerate(log) if isinstance(step, Tombstone) and step.key == key), default=-1)
    last, pending = None, set()
    for at, step in enumerate(log):
        if at < first or not isinstance(step, Commit) or step.key != key:
            continue
        ends = [later.is_commit for later in log[at:] if isinstance(later, Marker) and later.producer == step.producer]
        if step.producer == NO_PRODUCER or (ends and ends[0]):
            last = at
        elif not ends:
            pending.add(step.producer)
    return last, pending


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, min_size=15, max_size=30))
def test_offsets_are_those_that_the_log_says(log: list[Commit | Tombstone | Marker]) -> None:
    offsets = Offsets()
    for at, step in enumerate(log):
        if isinstance(step, Marker):
            offsets.end_transaction(step.producer, step.is_commit)
            continue
        group, topic, partition = step.key
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        if isinstance(step, Tombstone):
            offsets.replay(key, None, at, NO_PRODUCER)
        else:
            offsets.replay(key, OffsetCommitValue(offset=at, metadata=""), at, step.producer)
    expected = {key: said_by(log, key) for key in ALL_KEYS}
    pending = 0
    for key, (last, producers) in expected.items():
        group, topic, partition = key
        found = offsets.of_group(group).get(topic, {}).get(partition)
        assert (None if found is None else found.offset) == last
        assert offsets.pending.has(*key) is bool(producers)
        assert offsets.has(*key) is (last is not None or bool(producers))
        pending += len(producers)
    assert len(offsets.pending) == pending
    for group in GROUPS:
        own = {key: said for key, said in expected.items() if key[0] == group}
        assert offsets.pending.has_group(group) is any(producers for _, producers in own.values())
        known = {key for key, (last, producers) in own.items() if last is not None or producers}
        removed = [(key.group, key.topic, key.partition) for key, _ in offsets.tombstones(group)]
        assert len(removed) == len(known) and set(removed) == known
