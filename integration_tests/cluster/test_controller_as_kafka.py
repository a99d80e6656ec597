"""Our controller and Kafka's decide the same, record for record, in random histories of a cluster.

Both get each command, with the same state. What is compared: the records, the answer, and the error with its words.
Both then apply our records.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest

from integration_tests.cluster.oracle.oracle import Oracle, Refused
from isthmus.core_broker.cluster.controller import AssignDirectories
from isthmus.core_broker.cluster.image import TopicImage
from isthmus.core_broker.cluster.partition_image import NO_LEADER
from isthmus.protocol.messages import metadata_records as r
from tests.core_broker.cluster.histories import SESSION_MS, History, Step

SEEDS = range(60)
STEPS = 80


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    found = Oracle(tmp_path_factory.mktemp("oracle"))
    yield found
    found.close()


class Kafka:
    """The judge who decides himself."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        oracle.ask("new", cluster_id="cluster-x", session_ms=SESSION_MS)

    def decided(self, history: History, step: Step) -> None:
        result = step.result
        told = (getattr(result, "error_code", 0), getattr(result, "error_message", None))
        if getattr(result, "error", None) is not None:
            told = (result.error.code, result.error.message)
        try:
            records, answer = self.oracle.ask(step.do, **step.fields)
        except Refused as error:
            assert told == (error.code, error.message), step.command
            return
        if any(waits_for_ever(each, step.before) for each in records):
            [ours], [theirs] = step.records, records
            assert ends_instead(ours, theirs, step.before), step.command
            return
        ours = [each for each in step.records if not is_given_a_leader(each, step)]
        assert in_order(ours) == in_order(mended(records, step.before)), step.command
        assert step.answer(result) == answer, step.command

    def expired(
        self, history: History, records: Sequence[Any], fenced: Sequence[int], before: Mapping[bytes, TopicImage]
    ) -> None:
        theirs: list[Any] = []
        goes_on = True
        while goes_on:
            some, goes_on = self.oracle.ask("expire")
            theirs += [] if some and some[-1].broker_id in fenced else some  # Kafka fences it once more
        assert in_order(records) == in_order(mended(theirs, before))

    def applied(self, records: Sequence[Any], offset: int) -> None:
        self.oracle.apply(records, offset)

    def told(self, do: str, **fields: Any) -> None:
        self.oracle.ask(do, **fields)


def mended(records: Sequence[Any], before: Mapping[bytes, TopicImage]) -> list[Any]:
    """Kafka's records without what is no replica any more in elr and last_known_elr: a difference on purpose."""
    found = []
    for record in records:
        if isinstance(record, r.PartitionChangeRecord):
            old = before[record.topic_id].partitions[record.partition_id]
            new = old.merged(record)
            elr = tuple(each for each in new.elr if each in new.replicas)
            last = tuple(each for each in new.last_known_elr if each in new.replicas)
            record.eligible_leader_replicas = None if elr == old.elr else list(elr)
            record.last_known_elr = None if last == old.last_known_elr else list(last)
            if record == r.PartitionChangeRecord(partition_id=record.partition_id, topic_id=record.topic_id):
                continue
        found.append(record)
    return found


def is_given_a_leader(record: Any, step: Step) -> bool:
    """Whether a partition without a leader gets the one that has said where its replica is: a difference on purpose.

    Kafka's brokers have a directory back after a restart alone, and lead again when they are unfenced after that.
    """
    if not isinstance(step.command, AssignDirectories) or not isinstance(record, r.PartitionChangeRecord):
        return False
    before = step.before[record.topic_id].partitions[record.partition_id]
    return before.leader == NO_LEADER and record.leader == step.command.broker_id


def waits_for_ever(record: Any, before: Mapping[bytes, TopicImage]) -> bool:
    """Whether Kafka's record leaves a reassignment whose copies are all made: a difference on purpose.

    It took the place of another one, and removes what that one adds. Kafka keeps both, and ends it once all that is
    added is in sync and not removed, which never comes. Ours ends it as if that was not added.
    """
    if not isinstance(record, r.PartitionChangeRecord):
        return False
    new = before[record.topic_id].partitions[record.partition_id].merged(record)
    added = [each for each in new.adding_replicas if each not in new.removing_replicas]
    staying = [each for each in new.replicas if each not in new.removing_replicas]
    in_sync = [each for each in new.isr if each not in new.removing_replicas]
    needed = staying if len(added) < len(new.removing_replicas) else added
    is_complete = bool(staying and in_sync) and all(each in in_sync for each in needed)
    return is_complete and len(added) < len(new.adding_replicas)


def ends_instead(ours: Any, theirs: Any, before: Mapping[bytes, TopicImage]) -> bool:
    """Whether our record is for the same partition and ends what Kafka's leaves as it is."""
    if (ours.topic_id, ours.partition_id) != (theirs.topic_id, theirs.partition_id):
        return False
    old = before[ours.topic_id].partitions[ours.partition_id]
    is_now, kafkas = old.merged(ours), old.merged(theirs)
    staying = tuple(each for each in kafkas.replicas if each not in kafkas.removing_replicas)
    in_sync = tuple(each for each in kafkas.isr if each not in kafkas.removing_replicas)
    leads = is_now.leader == kafkas.leader or (kafkas.leader not in in_sync and is_now.leader in in_sync)
    return leads and (is_now.replicas, is_now.isr, is_now.is_moving) == (staying, in_sync, False)


def in_order(records: Sequence[Any]) -> list[Any]:
    """Changes of partitions that follow each other may do so in any order."""
    found: list[Any] = []
    for kind, each in groupby(records, type):
        some = list(each)
        if kind is r.PartitionChangeRecord:
            some.sort(key=lambda record: (record.topic_id, record.partition_id))
        found += some
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_both_controllers_decide_the_same(oracle: Oracle, seed: int) -> None:
    History(Kafka(oracle), random.Random(seed), has_elr=seed % 2 == 0).live(STEPS)
