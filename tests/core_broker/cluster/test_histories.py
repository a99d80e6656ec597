"""What holds after each decision of the controller, in random histories."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import (
    AlterPartition,
    BrokerHeartbeat,
    Election,
    ElectLeaders,
    ElectUncleanLeaders,
)
from isthmus.core_broker.cluster.features import ELR_VERSION
from isthmus.core_broker.cluster.image import MetadataImage, TopicImage
from isthmus.core_broker.cluster.metadata_snapshot import image_records
from isthmus.core_broker.cluster.partition_image import NO_LEADER, PartitionImage
from isthmus.core_broker.cluster.partition_index import PartitionIndex
from isthmus.protocol.messages import metadata_records as r

from .histories import History, Step

SEEDS = range(40)
STEPS = 80
KEEP_COPIES = (BrokerHeartbeat, AlterPartition)  # by which no replica is lost that has all committed records


class Invariants:
    """The judge who needs no second opinion."""

    def decided(self, history: History, step: Step) -> None:
        self._check(history.image, step.before)
        for topic, index, old, new in changes(history.image, step.before):
            if isinstance(step.command, KEEP_COPIES):
                check_copies(history, topic, old, new)
            unclean = isinstance(step.command, ElectUncleanLeaders) or (
                isinstance(step.command, ElectLeaders) and step.command.election == Election.UNCLEAN
            )
            if new.leader not in (old.leader, NO_LEADER) and not unclean and not allows_unclean(topic):
                told = (each for each, _ in step.command.topics[0][1][0].isr) if is_alter(step) else ()
                known = {*old.isr, *old.elr, *old.last_known_elr, *told}
                assert new.leader in known, f"{topic.name}-{index}: {old} became {new} by {step.command}"

    def expired(
        self, history: History, records: Sequence[Any], fenced: Sequence[int], before: Mapping[bytes, TopicImage]
    ) -> None:
        self._check(history.image, before)
        for topic, _, old, new in changes(history.image, before):
            check_copies(history, topic, old, new)

    def applied(self, records: Sequence[Any], offset: int) -> None:
        pass

    def told(self, do: str, **fields: Any) -> None:
        pass

    def _check(self, image: MetadataImage, before: Mapping[bytes, TopicImage]) -> None:
        index = PartitionIndex()
        has_elr = image.features.get(ELR_VERSION, 0) > 0
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                check_partition(image, partition, has_elr)
                index.replace((topic.id, number), None, partition)
        assert index == image.index
        for _, _, old, new in changes(image, before):
            assert new.partition_epoch > old.partition_epoch
            assert new.leader_epoch >= old.leader_epoch
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch


def check_partition(image: MetadataImage, partition: PartitionImage, has_elr: bool) -> None:
    replicas, isr, elr, last = partition.replicas, partition.isr, partition.elr, partition.last_known_elr
    assert len(set(replicas)) == len(replicas) and len(set(isr)) == len(isr)
    assert {*isr, *elr, *last} <= {*replicas}
    assert not {*isr} & {*elr} and len(last) <= 1
    if not has_elr:
        assert isr and not elr
    if partition.leader != NO_LEADER:
        assert partition.leader in isr and not image.brokers[partition.leader].fenced


def check_copies(history: History, topic: TopicImage, old: PartitionImage, new: PartitionImage) -> None:
    """With ELR, so many replicas have all committed records as min.insync.replicas asks for, if there were."""
    if history.image.features.get(ELR_VERSION) and not allows_unclean(topic) and old.replicas == new.replicas:
        wanted = min(int(topic.configs["min.insync.replicas"]), len(topic.partitions[0].replicas))
        if not old.last_known_elr:
            assert len(new.isr) + len(new.elr) >= min(wanted, len(old.isr) + len(old.elr))


def allows_unclean(topic: TopicImage) -> bool:
    return topic.configs["unclean.leader.election.enable"] == "true"


def is_alter(step: Step) -> bool:
    return isinstance(step.command, AlterPartition)


def changes(
    image: MetadataImage, before: Mapping[bytes, TopicImage]
) -> list[tuple[TopicImage, int, PartitionImage, PartitionImage]]:
    return [
        (topic, index, before[topic.id].partitions[index], new)
        for topic in image.topics.values()
        if topic.id in before
        for index, new in topic.partitions.items()
        if new is not before[topic.id].partitions[index]
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_invariants_hold_after_each_decision(seed: int) -> None:
    history = History(Invariants(), random.Random(seed), has_elr=seed % 2 == 0)
    history.live(STEPS)
    fold = MetadataImage("cluster-x")
    records = [r.decode(r.encode(record)) for record in image_records(history.image)]
    fold.apply(records, history.image.offset, history.image.epoch)
    assert fold == history.image, "the snapshot gives another image"
