"""What the coming and going of brokers means for partitions: the change records for all that a broker concerns.

Kafka's ReplicationControlManager has the same rules. The index of the image gives the partitions, so that the work is
that of the broker's own partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from ...config import topic_option, topic_value
from ..features import ELR_VERSION
from ..image import BrokerInfo, MetadataImage, TopicImage
from ..partition_image import MIGRATING, PartitionImage
from ..partition_index import Key
from .common import View
from .partition_change import ElectionPolicy, MayLead, Rules, Target, changed

FENCE, UNFENCE = 1, -1  # in a BrokerRegistrationChangeRecord
NOBODY = -1
MIN_ISR = topic_option("min.insync.replicas")
UNCLEAN_ENABLED = topic_option("unclean.leader.election.enable")


def has_elr(image: MetadataImage) -> bool:
    """Whether the cluster keeps eligible leader replicas (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) >= 1


def min_isr(view: View, topic: TopicImage) -> int:
    """The effective min.insync.replicas of a topic: more than there are replicas cannot be asked for."""
    asked: int = topic_value(MIN_ISR, topic.configs, view.config)
    return min(asked, len(topic.partitions[0].replicas))


def allows_unclean(view: View, topic: TopicImage) -> bool:
    """Whether a replica that is not in sync may lead a topic's partition if there is no other."""
    return bool(topic_value(UNCLEAN_ENABLED, topic.configs, view.config))


def may_lead(image: MetadataImage, removed: int = NOBODY, added: int = NOBODY) -> MayLead:
    """Which replicas can lead. removed: a broker that cannot any more; added: one that can from now on."""

    def test(broker_id: int, partition: PartitionImage) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id == removed or not (broker.is_active or broker_id == added):
            return False
        return broker_id not in partition.replicas or broker.has_online(partition.directory_of(broker_id))

    return test


class TopicRules:
    """The rules for the partitions of any topic: made once for all that have the same options.

    election: by default the one that the topic allows.
    """

    def __init__(self, view: View, test: MayLead, election: ElectionPolicy | None = None) -> None:
        self._view = view
        self._test = test
        self._election = election
        self._has_elr = has_elr(view.image)
        self._made: dict[tuple[str | None, str | None, int], Rules] = {}

    def of(self, topic: TopicImage) -> Rules:
        configs = topic.configs
        options = configs.get(MIN_ISR.name), configs.get(UNCLEAN_ENABLED.name), len(topic.partitions[0].replicas)
        rules = self._made.get(options)
        if rules is None:
            rules = self._made[options] = self._make(topic)
        return rules

    def _make(self, topic: TopicImage) -> Rules:
        election = self._election
        if election is None:
            election = ElectionPolicy.UNCLEAN if allows_unclean(self._view, topic) else ElectionPolicy.ONLINE
        return Rules(self._test, min_isr(self._view, topic), self._has_elr, self._default_directory, election)

    def _default_directory(self, broker_id: int) -> bytes:
        broker = self._view.image.brokers.get(broker_id)
        return MIGRATING if broker is None else broker.default_directory


def updates(
    view: View, keys: Iterable[Key], *, removed: int = NOBODY, added: int = NOBODY, unclean: int = NOBODY
) -> list[PartitionChangeRecord]:
    """The changes of partitions whose broker is `removed` from ISR and leadership, `added` to those that may lead, or
    has lost what it had not synced: `unclean`, which takes it out of the ELR, too."""
    test = may_lead(view.image, removed if unclean == NOBODY else unclean, added)
    rules = TopicRules(view, test)
    gone = (removed, unclean)
    lost = () if unclean == NOBODY else (unclean,)
    records = []
    for key in keys:
        topic, partition = view.image.partition_by_key(key)
        target = Target(isr=tuple([each for each in partition.isr if each not in gone]), unclean=lost)
        record = changed(topic.id, key[1], partition, target, rules.of(topic))
        if record is not None:
            records.append(record)
    return records


def fenced(view: View, broker: BrokerInfo) -> list[PartitionChangeRecord | BrokerRegistrationChangeRecord]:
    """A broker leaves all ISRs and leads no more; then it is fenced."""
    return [
        *updates(view, view.image.index.in_isr.get(broker.id, ()), removed=broker.id),
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE),
    ]


def unfenced(view: View, broker: BrokerInfo) -> list[PartitionChangeRecord | BrokerRegistrationChangeRecord]:
    """A broker may lead again, and does where nobody else does."""
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE),
        *updates(view, view.image.index.leaderless, added=broker.id),
    ]


def shutting_down(view: View, broker: BrokerInfo) -> list[PartitionChangeRecord | BrokerRegistrationChangeRecord]:
    """A broker is about to stop in order: it leaves ISRs and leadership while it still answers."""
    told = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1)
    changes = updates(view, view.image.index.in_isr.get(broker.id, ()), removed=broker.id)
    return [*changes] if broker.in_controlled_shutdown else [told, *changes]


def restarted(view: View, broker_id: int, was_clean: bool) -> list[PartitionChangeRecord]:
    """A new process of a broker: what its last one led and was in sync with. was_clean: it had synced all it had."""
    index = view.image.index
    in_isr, in_elr = index.in_isr.get(broker_id, ()), index.in_elr.get(broker_id, ())
    if was_clean or not has_elr(view.image):
        return updates(view, in_isr, removed=broker_id)
    return updates(view, [*in_isr, *in_elr], unclean=broker_id)


def unregistered(view: View, broker_id: int) -> list[PartitionChangeRecord]:
    """A broker leaves the cluster."""
    index = view.image.index
    return updates(view, [*index.in_isr.get(broker_id, ()), *index.in_elr.get(broker_id, ())], removed=broker_id)


def directories_lost(view: View, broker: BrokerInfo, offline: Iterable[bytes]) -> list[PartitionChangeRecord]:
    """The partitions in directories of a broker that went offline leave it, as if it were fenced for them."""
    lost = tuple(offline)
    keys = [
        (topic.id, index)
        for topic in view.image.topics.values()
        for index, partition in topic.partitions.items()
        if any(each in lost for each in partition.directories)
    ]
    return updates(view, keys, removed=broker.id)
