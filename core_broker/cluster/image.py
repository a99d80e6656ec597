"""The metadata image: the cluster's state, as a pure fold over the records of `__cluster_metadata`.

`MetadataImage.apply` is the only writer, and the same records give the same image. Values inside are replaced, never
changed, so a reader may keep a `TopicImage`. Other parts of the broker react to the `Delta` of an apply. The semantics
of the records are those of Kafka's KRaft (KIP-500, KIP-631).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...protocol.messages import metadata_records as r
from .features import DIRECTORIES_SINCE, METADATA_VERSION
from .partition_image import LOST, MIGRATING, UNASSIGNED, PartitionImage, known_directories
from .partition_index import Key, PartitionIndex

NO_EPOCH = -1  # of a broker that is not registered
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


class InconsistentRecord(Exception):
    """A metadata record contradicts earlier ones: the log is damaged or was written by something else."""


@dataclass(slots=True, frozen=True)
class Endpoint:
    host: str
    port: int
    security_protocol: int = 0  # 0 is PLAINTEXT


Levels = tuple[int, int]  # the lowest and the highest level of a feature


@dataclass(slots=True, frozen=True)
class BrokerInfo:
    """A registered broker. fenced: it may not lead, nor be in an ISR. log_dirs: ids of the directories online.

    cordoned_log_dirs: directories that get no new partitions; None where nobody has said. fenced_at: up to where
    one must know the metadata to know that it was fenced, other than by its registration; no part of the metadata.
    """

    id: int
    epoch: int  # offset of its registration in the metadata log
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    features: Mapping[str, Levels] = field(default_factory=dict)
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    fenced_at: int = field(default=-1, compare=False)

    @property
    def is_active(self) -> bool:
        """Whether it may lead, and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_partitions(self) -> bool:
        """Whether a directory of it is not cordoned."""
        cordoned = self.cordoned_log_dirs
        return not self.log_dirs or cordoned is None or any(each not in cordoned for each in self.log_dirs)

    @property
    def default_directory(self) -> bytes:
        """Where a new replica goes."""
        if not self.log_dirs:
            return MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED

    def has_online(self, directory: bytes) -> bool:
        """Whether replicas in this directory can be used."""
        if directory in (UNASSIGNED, MIGRATING):
            return True
        return directory != LOST and (not self.log_dirs or directory in self.log_dirs)


@dataclass(slots=True, frozen=True)
class ControllerInfo:
    """A registered controller (KIP-919)."""

    id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, Levels] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class TopicImage:
    name: str
    id: bytes
    partitions: Mapping[int, PartitionImage] = field(default_factory=dict)  # by index, ascending
    configs: Mapping[str, str] = field(default_factory=dict)  # options set for the topic, as text


@dataclass(slots=True, frozen=True)
class LinkImage:
    """A mirror link that owns topics here. Appends under a lower epoch are refused."""

    link_id: str
    source_cluster_id: str
    link_epoch: int


@dataclass(slots=True)
class Delta:
    """What one apply changed, as far as anybody reacts to that. A topic that was deleted and created again under its
    name is in both maps.

    `changed`: indexes of new or changed partitions of existing topics, including created topics. Every map keeps the
    order of the records.
    """

    created: dict[str, TopicImage] = field(default_factory=dict)
    deleted: dict[str, TopicImage] = field(default_factory=dict)
    changed: dict[str, dict[int, None]] = field(default_factory=dict)
    reconfigured: dict[str, None] = field(default_factory=dict)  # topics whose options changed, except new ones
    brokers: dict[int, None] = field(default_factory=dict)
    broker_options: dict[str, None] = field(default_factory=dict)  # broker ids as text, "" for all
    group_options: dict[str, None] = field(default_factory=dict)  # group ids
    links: dict[str, None] = field(default_factory=dict)


class MetadataImage:
    """See the module. `offset` and `epoch`: of the last applied record, -1 before the first.

    index: the partitions by broker.
    """

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.offset = -1
        self.epoch = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.controllers: dict[int, ControllerInfo] = {}
        self.index = PartitionIndex()
        self.topics: dict[str, TopicImage] = {}
        self.links: dict[str, LinkImage] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}  # by broker id as text, "" for all
        self.group_configs: dict[str, dict[str, str]] = {}  # by group id
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.names_by_id: dict[bytes, str] = {}  # of existing topics
        self._similar: dict[str, list[str]] = {}  # topic names by the name with every "." as "_"
        self._fresh: dict[str, dict[int, PartitionImage]] = {}  # maps that this apply may change in place

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(index)

    def partition_by_key(self, key: Key) -> tuple[TopicImage, PartitionImage]:
        """A partition that is in the index, and its topic."""
        topic = self.topics[self.names_by_id[key[0]]]
        return topic, topic.partitions[key[1]]

    @property
    def has_directories(self) -> bool:
        """Whether the cluster's metadata names the directory of each replica (KIP-858)."""
        return self.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch under which a broker is registered; NO_EPOCH if it is not."""
        broker = self.brokers.get(broker_id)
        return NO_EPOCH if broker is None else broker.epoch

    def endpoint_of(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where a broker listens by that name; None if it is not alive, or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.endpoints.get(listener)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead, and be in an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online(self, broker_id: int, partition: PartitionImage) -> bool:
        """Whether a replica is on a live broker, in a directory that is online."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker.has_online(partition.directory_of(broker_id))

    def similar_topics(self, name: str) -> list[str]:
        """Existing names, sorted, that differ from `name` at most in "." and "_"."""
        return list(self._similar.get(_unified(name), ()))

    def everything(self) -> Delta:
        """The delta from an empty image to this one."""
        delta = Delta()
        delta.created.update(self.topics)
        delta.changed.update({name: dict.fromkeys(topic.partitions) for name, topic in self.topics.items()})
        delta.brokers.update(dict.fromkeys(self.brokers))
        delta.broker_options.update(dict.fromkeys(self.broker_configs))
        delta.group_options.update(dict.fromkeys(self.group_configs))
        delta.links.update(dict.fromkeys(self.links))
        return delta

    def apply(self, records: Iterable[Any], offset: int, epoch: int) -> Delta:
        """Apply records; the last one is at `offset`, written under leader epoch `epoch`.

        Raises InconsistentRecord; the image cannot be used any more then.
        """
        delta = Delta()
        self.offset = offset
        self.epoch = epoch
        for record in records:
            _FOLD[type(record)](self, record, delta)
        for name, partitions in self._fresh.items():
            if list(partitions) != sorted(partitions):
                self.topics[name] = replace(self.topics[name], partitions=dict(sorted(partitions.items())))
        self._fresh = {}
        # A delta has a topic's last state, and nothing of a topic that the same records created and deleted.
        for name in delta.created:
            delta.created[name] = self.topics[name]
        return delta

    # --- one function per record ----------------------------------------------------------------------------------

    def _register_broker(self, record: r.RegisterBrokerRecord, delta: Delta) -> None:
        self.brokers[record.broker_id] = BrokerInfo(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            endpoints_of(record.end_points),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            features_of(record.features),
            tuple(sorted(record.log_dirs)),
            None if record.cordoned_log_dirs is None else tuple(sorted(record.cordoned_log_dirs)),
        )
        delta.brokers[record.broker_id] = None

    def _unregister_broker(self, record: r.UnregisterBrokerRecord, delta: Delta) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        delta.brokers[record.broker_id] = None

    def _fence_broker(self, record: r.FenceBrokerRecord, delta: Delta) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=True, fenced_at=self.offset)
        delta.brokers[record.id] = None

    def _unfence_broker(self, record: r.UnfenceBrokerRecord, delta: Delta) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=False)
        delta.brokers[record.id] = None

    def _change_broker(self, record: r.BrokerRegistrationChangeRecord, delta: Delta) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self.brokers[record.broker_id] = replace(
            old,
            fenced=record.fenced == 1 if record.fenced else old.fenced,
            fenced_at=self.offset if record.fenced == 1 else old.fenced_at,
            in_controlled_shutdown=old.in_controlled_shutdown or record.in_controlled_shutdown == 1,
            log_dirs=tuple(sorted(record.log_dirs)) or old.log_dirs,
            cordoned_log_dirs=old.cordoned_log_dirs if cordoned is None else tuple(sorted(cordoned)),
        )
        delta.brokers[record.broker_id] = None

    def _register_controller(self, record: r.RegisterControllerRecord, delta: Delta) -> None:
        self.controllers[record.controller_id] = ControllerInfo(
            record.controller_id, record.incarnation_id, endpoints_of(record.end_points), features_of(record.features)
        )

    def _unregister_controller(self, record: r.UnregisterControllerRecord, delta: Delta) -> None:
        if self.controllers.pop(record.controller_id, None) is None:
            raise InconsistentRecord(f"controller {record.controller_id} leaves, but is not registered")

    def _create_topic(self, record: r.TopicRecord, delta: Delta) -> None:
        if record.name in self.topics or record.topic_id in self.names_by_id:
            raise InconsistentRecord(f"topic {record.name} is created, but exists already")
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.names_by_id[record.topic_id] = record.name
        self._similar[_unified(record.name)] = sorted([*self.similar_topics(record.name), record.name])
        delta.created[record.name] = topic

    def _remove_topic(self, record: r.RemoveTopicRecord, delta: Delta) -> None:
        topic = self._topic(record.topic_id)
        for index, partition in topic.partitions.items():
            self.index.replace((topic.id, index), partition, None)
        del self.topics[topic.name]
        del self.names_by_id[topic.id]
        self._fresh.pop(topic.name, None)
        similar = [name for name in self.similar_topics(topic.name) if name != topic.name]
        if similar:
            self._similar[_unified(topic.name)] = similar
        else:
            del self._similar[_unified(topic.name)]
        delta.changed.pop(topic.name, None)
        delta.reconfigured.pop(topic.name, None)
        if delta.created.pop(topic.name, None) is None:
            delta.deleted[topic.name] = topic

    def _set_partition(self, topic: TopicImage, index: int, partition: PartitionImage, delta: Delta) -> None:
        partitions = self._fresh.get(topic.name)
        if partitions is None:
            partitions = self._fresh[topic.name] = dict(topic.partitions)
            self.topics[topic.name] = TopicImage(topic.name, topic.id, partitions, topic.configs)
        self.index.replace((topic.id, index), partitions.get(index), partition)
        partitions[index] = partition
        delta.changed.setdefault(topic.name, {})[index] = None

    def _create_partition(self, record: r.PartitionRecord, delta: Delta) -> None:
        replicas = tuple(record.replicas)
        partition = PartitionImage(
            record.leader,
            record.leader_epoch,
            replicas if record.isr == record.replicas else tuple(record.isr),
            replicas,
            record.partition_epoch,
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            known_directories(record.directories),
        )
        self._set_partition(self._topic(record.topic_id), record.partition_id, partition, delta)

    def _change_partition(self, record: r.PartitionChangeRecord, delta: Delta) -> None:
        topic = self._topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise InconsistentRecord(f"partition {topic.name}-{record.partition_id} changes, but does not exist")
        self._set_partition(topic, record.partition_id, old.merged(record), delta)

    def _clear_elr(self, record: r.ClearElrRecord, delta: Delta) -> None:
        """Of a topic, or of all without a name: min.insync.replicas changed, and with it the ELR's meaning."""
        if record.topic_name and record.topic_name not in self.topics:
            raise InconsistentRecord(f"the ELR of topic {record.topic_name} is cleared, which does not exist")
        for name in [record.topic_name] if record.topic_name else list(self.topics):
            for index, partition in list(self.topics[name].partitions.items()):
                if partition.elr or partition.last_known_elr:
                    cleared = replace(
                        partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self._set_partition(self.topics[name], index, cleared, delta)

    def _configure(self, record: r.ConfigRecord, delta: Delta) -> None:
        name = record.resource_name
        if record.resource_type == TOPIC_RESOURCE:
            topic = self.topics.get(name)
            if topic is None:
                raise InconsistentRecord(f"an option of topic {name}, which does not exist")
            self.topics[name] = replace(topic, configs=_with(topic.configs, record.name, record.value))
            if name not in delta.created:
                delta.reconfigured[name] = None
        elif record.resource_type == BROKER_RESOURCE:
            _set_option(self.broker_configs, record)
            delta.broker_options[name] = None
        elif record.resource_type == GROUP_RESOURCE:
            _set_option(self.group_configs, record)
            delta.group_options[name] = None

    def _level(self, record: r.FeatureLevelRecord, delta: Delta) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: r.ProducerIdsRecord, delta: Delta) -> None:
        if record.next_producer_id <= self.next_producer_id:
            raise InconsistentRecord(
                f"producer ids up to {self.next_producer_id} are assigned, but a record has {record.next_producer_id}"
            )
        self.next_producer_id = record.next_producer_id

    def _link(self, record: r.MirrorLinkRecord, delta: Delta) -> None:
        self.links[record.link_id] = LinkImage(record.link_id, record.source_cluster_id, record.link_epoch)
        delta.links[record.link_id] = None

    def _nothing(self, record: Any, delta: Delta) -> None:
        """A record that only Kafka's controllers use."""

    def _topic(self, topic_id: bytes) -> TopicImage:
        topic = self.topic_by_id(topic_id)
        if topic is None:
            raise InconsistentRecord(f"a record of topic id {topic_id.hex()}, which does not exist")
        return topic

    def _broker(self, broker_id: int, epoch: int) -> BrokerInfo:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise InconsistentRecord(f"a record of broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise InconsistentRecord(f"a record of broker {broker_id} at epoch {epoch}, but it is at {broker.epoch}")
        return broker


def endpoints_of(rows: Iterable[Any]) -> dict[str, Endpoint]:
    """Of a record, or of a registration request."""
    return {each.name: Endpoint(each.host, each.port, each.security_protocol) for each in rows}


def features_of(rows: Iterable[Any]) -> dict[str, Levels]:
    """Of a record, or of a registration request."""
    return {each.name: (each.min_supported_version, each.max_supported_version) for each in rows}


def endpoint_rows(endpoints: Mapping[str, Endpoint]) -> list[r.BrokerEndpoint]:
    """The same in a record."""
    return [
        r.BrokerEndpoint(name=name, host=each.host, port=each.port, security_protocol=each.security_protocol)
        for name, each in endpoints.items()
    ]


def feature_rows(features: Mapping[str, Levels]) -> list[r.BrokerFeature]:
    """The same in a record."""
    return [
        r.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    ]


def _unified(name: str) -> str:
    return name.replace(".", "_")


def _set_option(configs: dict[str, dict[str, str]], record: r.ConfigRecord) -> None:
    """Set or remove an option in the options of resources by name. A resource without options is not there."""
    options = _with(configs.get(record.resource_name, {}), record.name, record.value)
    if options:
        configs[record.resource_name] = options
    else:
        configs.pop(record.resource_name, None)


def _with(configs: Mapping[str, str], name: str, value: str | None) -> dict[str, str]:
    """The options with one set or, if value is None, removed; sorted by name."""
    changed = {key: text for key, text in configs.items() if key != name}
    if value is not None:
        changed[name] = value
    return dict(sorted(changed.items()))


_FOLD: Mapping[type, Any] = {
    r.RegisterBrokerRecord: MetadataImage._register_broker,
    r.UnregisterBrokerRecord: MetadataImage._unregister_broker,
    r.FenceBrokerRecord: MetadataImage._fence_broker,
    r.UnfenceBrokerRecord: MetadataImage._unfence_broker,
    r.BrokerRegistrationChangeRecord: MetadataImage._change_broker,
    r.TopicRecord: MetadataImage._create_topic,
    r.RemoveTopicRecord: MetadataImage._remove_topic,
    r.PartitionRecord: MetadataImage._create_partition,
    r.PartitionChangeRecord: MetadataImage._change_partition,
    r.ConfigRecord: MetadataImage._configure,
    r.FeatureLevelRecord: MetadataImage._level,
    r.ProducerIdsRecord: MetadataImage._producer_ids,
    r.MirrorLinkRecord: MetadataImage._link,
    r.NoOpRecord: MetadataImage._nothing,
    r.RegisterControllerRecord: MetadataImage._register_controller,
    r.UnregisterControllerRecord: MetadataImage._unregister_controller,
    r.ClearElrRecord: MetadataImage._clear_elr,
}
