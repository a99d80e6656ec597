"""Committed offsets of groups: what is kept, the parts of requests that need no group, and which offsets expire.

Pure: records are made, and nothing is written here. The rules are Kafka's: an unknown group or partition is fetched as
offset -1 without an error; metadata is returned as it was given; offsets are kept while their group is used (KIP-211).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages import offset_commit as oc
from ...protocol.messages import offset_delete as od
from ...protocol.messages import offset_fetch as of
from ...protocol.messages import txn_offset_commit as tc
from ...protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ...protocol.primitives import ZERO_UUID
from ..cluster.image import MetadataImage
from ..config import MAX_LONG
from .java import java_length
from .pending_offsets import Committed, PendingOffsets
from .runtime import NO_PRODUCER, Record

NO_OFFSET = -1
NO_TIME = -1
TOPIC_IDS_SINCE = 10  # version of OffsetFetch


class Offsets:
    """The offsets of a shard, by group, topic and partition, in order of arrival; and those of open transactions.

    `pending` (`pending_offsets.py`): committed in transactions that have not ended.
    """

    def __init__(self) -> None:
        self.pending = PendingOffsets()
        self._groups: dict[str, dict[str, dict[int, Committed]]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        if value is None:
            self._remove(key)
            self.pending.forget(key)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER:
            self._put(key, committed)
        else:
            self.pending.add(producer_id, key, committed)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """The producer's pending offsets count from now on, or never will."""
        for key, committed in self.pending.take(producer_id):
            if not is_committed:
                continue
            before = self.of_group(key.group).get(key.topic, {}).get(key.partition)
            # The later record counts, not the later marker: compaction keeps the last record of a key.
            if before is None or before.record_offset < committed.record_offset:
                self._put(key, committed)

    def _put(self, key: OffsetCommitKey, committed: Committed) -> None:
        self._groups.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = committed

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is not None and not partitions:
            del topics[key.topic]
            if not topics:
                del self._groups[key.group]

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        return self._groups.get(group_id, {})

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset of a partition, be it pending."""
        known = self.of_group(group_id).get(topic, {})
        return partition in known or self.pending.has(group_id, topic, partition)

    def tombstones(self, group_id: str) -> list[Record]:
        """Records that remove all offsets of a group, the pending ones, too."""
        return self._tombstones(group_id, lambda topic: True)

    def of_topics(self, topics: Collection[str]) -> list[Record]:
        """Tombstones of the offsets of topics, for all groups."""
        groups = dict.fromkeys([*self._groups, *self.pending.groups()])
        return [record for group_id in groups for record in self._tombstones(group_id, topics.__contains__)]

    def _tombstones(self, group_id: str, is_wanted: Callable[[str], bool]) -> list[Record]:
        both = [(topic, partition) for topic, partition, _ in self._each(group_id)]
        both += self.pending.partitions(group_id)
        return [
            (_key(group_id, topic, partition), None) for topic, partition in dict.fromkeys(both) if is_wanted(topic)
        ]

    def expired(
        self, group_id: str, now_ms: int, retention_ms: int, since_ms: int | None, used_topics: Collection[str]
    ) -> list[Record]:
        """Tombstones of the offsets of a group that have expired.

        since_ms: when the group became Empty, from where retention counts; None: from when each offset was committed.
        used_topics: topics that members read, whose offsets do not expire. Nor do those of which others are pending.
        """
        found: list[Record] = []
        for topic, partition, committed in self._each(group_id):
            if topic in used_topics or self.pending.has(group_id, topic, partition):
                continue
            if committed.expire_timestamp_ms != NO_TIME:
                is_old = now_ms >= committed.expire_timestamp_ms
            else:
                start = committed.commit_timestamp_ms if since_ms is None else since_ms
                is_old = now_ms - start >= retention_ms
            if is_old:
                found.append((_key(group_id, topic, partition), None))
        return found

    def _each(self, group_id: str) -> Iterator[tuple[str, int, Committed]]:
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed


def _key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


# --- OffsetCommit, TxnOffsetCommit ------------------------------------------------------------------------------------


class Form(NamedTuple):
    """The parts of an answer to a commit, and from which version on topics have ids."""

    response: Any
    topic: Any
    partition: Any
    topic_ids_since: int


OFFSET_COMMIT = Form(oc.Response, oc.OffsetCommitResponseTopic, oc.OffsetCommitResponsePartition, 10)
TXN_OFFSET_COMMIT = Form(tc.Response, tc.TxnOffsetCommitResponseTopic, tc.TxnOffsetCommitResponsePartition, 6)


class Commit(NamedTuple):
    """A checked commit request: records to write, the answer, and of it the partitions that exist."""

    records: list[Record]
    response: Any
    accepted: list[Any]

    def fail(self, code: int) -> Any:
        """The answer when the records could not be written."""
        for partition in self.accepted:
            partition.error_code = code
        return self.response


def prepare_commit(
    request: oc.Request | tc.Request,
    version: int,
    image: MetadataImage,
    now_ms: int,
    max_metadata: int,
    form: Form = OFFSET_COMMIT,
) -> Commit:
    """Check topics, partitions and metadata of a commit. Whether the group takes it is for the caller to check."""
    records: list[Record] = []
    accepted: list[Any] = []
    wrong: dict[tuple[str, bytes], Any] = {}
    right: list[Any] = []
    retention_ms = request.retention_time_ms if isinstance(request, oc.Request) else NO_TIME
    expires_ms = NO_TIME if retention_ms == NO_TIME else min(now_ms + retention_ms, MAX_LONG)
    by_id = version >= form.topic_ids_since
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = topic.name if found is None else found.name
        own = form.topic(name=name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if found is None:
                error = unknown
            elif partition.partition_index not in found.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = form.partition(partition_index=partition.partition_index, error_code=error)
            if error or found is None:
                slot = wrong.setdefault((name, topic.topic_id), form.topic(name=name, topic_id=topic.topic_id))
                slot.partitions.append(answer)
                continue
            own.partitions.append(answer)
            accepted.append(answer)
            metadata = partition.committed_metadata or ""
            if java_length(metadata) > max_metadata:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expires_ms,
                topic_id=found.id,
            )
            records.append((_key(request.group_id, name, partition.partition_index), value))
        if own.partitions:
            right.append(own)
        elif found is None:
            wrong.setdefault((name, topic.topic_id), own)  # it is in the answer even when no partition was asked for
    return Commit(records, form.response(topics=_with_wrong(wrong, right)), accepted)


def _with_wrong(wrong: dict[tuple[str, bytes], Any], right: list[Any]) -> list[Any]:
    """The topics of the answer, as Kafka has them: one named twice is there twice, unless any topic has an error."""
    if not wrong:
        return right
    by_topic: dict[tuple[str, bytes], Any] = {}
    for topic in right:
        slot = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if slot is not topic:
            slot.partitions += topic.partitions
    return _merged(wrong, by_topic)


def _merged(first: dict[Any, Any], second: dict[Any, Any]) -> list[Any]:
    """The topics of both in one list, each once, as Kafka has them: those with errors are `first`."""
    merged = dict(first)
    for key, topic in second.items():
        if key in merged:
            merged[key].partitions += topic.partitions
        else:
            merged[key] = topic
    return list(merged.values())


# --- OffsetDelete -----------------------------------------------------------------------------------------------------


class Deletion(NamedTuple):
    """A checked request: the answer, and of it the partitions that exist, for the group to decide."""

    group_id: str
    response: od.Response
    known: list[tuple[str, od.OffsetDeleteResponsePartition]]

    def decide(self, offsets: Offsets, is_subscribed: Callable[[str], bool]) -> list[Record]:
        """Tombstones of the offsets of topics that no member reads; the other topics get an error in the answer."""
        records: list[Record] = []
        used = {topic: is_subscribed(topic) for topic in dict.fromkeys(name for name, _ in self.known)}
        for topic, partition in self.known:
            if used[topic]:
                partition.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif offsets.has(self.group_id, topic, partition.partition_index):
                records.append((_key(self.group_id, topic, partition.partition_index), None))
        return records


def prepare_delete(request: od.Request, image: MetadataImage) -> Deletion:
    """Check topics and partitions of a request. Whether the group allows it is for the caller to check."""
    known: list[tuple[str, od.OffsetDeleteResponsePartition]] = []
    wrong: dict[str, od.OffsetDeleteResponseTopic] = {}
    right: dict[str, od.OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        found = image.topics.get(topic.name)
        if found is None:
            wrong.setdefault(topic.name, od.OffsetDeleteResponseTopic(name=topic.name))
        for partition in topic.partitions:
            exists = found is not None and partition.partition_index in found.partitions
            error = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = od.OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
            slot = (right if exists else wrong).setdefault(topic.name, od.OffsetDeleteResponseTopic(name=topic.name))
            slot.partitions.append(answer)
            if exists:
                known.append((topic.name, answer))
    return Deletion(request.group_id, od.Response(topics=_merged(wrong, right)), known)


# --- OffsetFetch ------------------------------------------------------------------------------------------------------


def fetch_group(
    asked: of.OffsetFetchRequestGroup, version: int, offsets: Offsets, image: MetadataImage, require_stable: bool
) -> of.OffsetFetchResponseGroup:
    """The answer for one group, in the form of version 8 and later.

    require_stable: a partition for which a transaction is open has no offset now (KIP-447).
    """

    def answer_of(name: str, index: int, partitions: Mapping[int, Committed]) -> of.OffsetFetchResponsePartitions:
        if require_stable and offsets.pending.has(asked.group_id, name, index):
            return _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _answer(index, partitions)

    committed = offsets.of_group(asked.group_id)
    by_id = version >= TOPIC_IDS_SINCE
    topics: list[of.OffsetFetchResponseTopics] = []
    if asked.topics is None:
        for name, partitions in committed.items():
            known = image.topics.get(name)
            if by_id and known is None:
                continue  # the topic was deleted, and its id with it
            topics.append(
                of.OffsetFetchResponseTopics(
                    name=name,
                    topic_id=known.id if by_id and known is not None else ZERO_UUID,
                    partitions=[answer_of(name, index, partitions) for index in partitions],
                )
            )
    else:
        for topic in asked.topics:
            known = image.topic_by_id(topic.topic_id) if by_id else None
            answer = of.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
            topics.append(answer)
            if by_id and known is None:
                answer.partitions = [_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
                continue
            name = topic.name if known is None else known.name
            found = committed.get(name, {})
            if known is not None:
                # A request by id is not for the offsets of an earlier topic of the same name.
                found = {index: each for index, each in found.items() if each.topic_id in (ZERO_UUID, known.id)}
            answer.partitions = [answer_of(name, index, found) for index in topic.partition_indexes]
    return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def failed_group(
    asked: of.OffsetFetchRequestGroup, version: int, error: ErrorCode
) -> of.OffsetFetchResponseGroup:  # fmt: skip
    """The answer for a group that cannot be used. Version 1 has no error field but those of the partitions."""
    if version >= 2:
        return of.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
    topics = [
        of.OffsetFetchResponseTopics(
            name=topic.name, partitions=[_no_offset(index, error) for index in topic.partition_indexes]
        )
        for topic in asked.topics or ()
    ]
    return of.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics, error_code=error)


def _answer(index: int, partitions: Mapping[int, Committed]) -> of.OffsetFetchResponsePartitions:
    committed = partitions.get(index)
    if committed is None:
        return _no_offset(index, ErrorCode.NONE)
    return of.OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _no_offset(index: int, error: ErrorCode) -> of.OffsetFetchResponsePartitions:
    return of.OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata="", error_code=error
    )


def asked_groups(request: of.Request, version: int) -> list[of.OffsetFetchRequestGroup]:
    """The groups of a request of any version, in the form of version 8."""
    if version >= 8:
        # A group that is asked for all its topics twice is answered once: the answer may be long.
        whole = {each.group_id: each for each in request.groups if each.topics is None}
        return [each for each in request.groups if each.topics is not None or whole[each.group_id] is each]
    topics = None
    if request.topics is not None:
        topics = [
            of.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [of.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def fetch_response(groups: list[of.OffsetFetchResponseGroup], version: int) -> of.Response:
    """The response in any version, from answers in the form of version 8."""
    if version >= 8:
        return of.Response(groups=groups)
    (group,) = groups
    topics = [
        of.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                of.OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return of.Response(topics=topics, error_code=group.error_code)
