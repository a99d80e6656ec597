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
from ...protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ...protocol.primitives import ZERO_UUID
from ..cluster.image import MetadataImage
from ..config import MAX_LONG
from .java import java_length
from .runtime import Record

NO_OFFSET = -1
NO_TIME = -1
TOPIC_IDS_SINCE = 10  # version of OffsetCommit and OffsetFetch


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int  # from requests before v5, which have a retention time; else NO_TIME
    topic_id: bytes  # zeros where the record has none


class Offsets:
    """The offsets of a shard, by group, topic and partition, in order of arrival."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, Committed]]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        topics = self._groups.setdefault(key.group, {})
        partitions = topics.setdefault(key.topic, {})
        if value is None:
            partitions.pop(key.partition, None)
        else:
            partitions[key.partition] = Committed(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group]

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        return self._groups.get(group_id, {})

    def groups(self) -> list[str]:
        return list(self._groups)

    def tombstones(self, group_id: str) -> list[Record]:
        """Records that remove all offsets of a group."""
        return [(_key(group_id, topic, partition), None) for topic, partition, _ in self._each(group_id)]

    def expired(
        self, group_id: str, now_ms: int, retention_ms: int, since_ms: int | None, used_topics: Collection[str]
    ) -> list[Record]:
        """Tombstones of the offsets of a group that have expired.

        since_ms: when the group became Empty, from where retention counts; None: from when each offset was committed.
        used_topics: topics that members read, whose offsets do not expire.
        """
        found: list[Record] = []
        for topic, partition, committed in self._each(group_id):
            if topic in used_topics:
                continue
            if committed.expire_timestamp_ms != NO_TIME:
                is_old = now_ms >= committed.expire_timestamp_ms
            else:
                start = committed.commit_timestamp_ms if since_ms is None else since_ms
                is_old = now_ms - start >= retention_ms
            if is_old:
                found.append((_key(group_id, topic, partition), None))
        return found

    def of_topics(self, topics: Collection[str]) -> list[Record]:
        """Tombstones of the offsets of topics, for all groups."""
        return [
            (_key(group_id, topic, partition), None)
            for group_id in self._groups
            for topic, partition, _ in self._each(group_id)
            if topic in topics
        ]

    def _each(self, group_id: str) -> Iterator[tuple[str, int, Committed]]:
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed


def _key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


# --- OffsetCommit -----------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """A checked commit request: records to write, the answer, and of it the partitions that exist."""

    records: list[Record]
    response: oc.Response
    accepted: list[oc.OffsetCommitResponsePartition]

    def fail(self, code: int) -> oc.Response:
        """The answer when the records could not be written."""
        for partition in self.accepted:
            partition.error_code = code
        return self.response


def prepare_commit(
    request: oc.Request, version: int, image: MetadataImage, now_ms: int, max_metadata: int
) -> Commit:  # fmt: skip
    """Check topics, partitions and metadata of a commit. Whether the group takes it is for the caller to check."""
    records: list[Record] = []
    accepted: list[oc.OffsetCommitResponsePartition] = []
    wrong: dict[tuple[str, bytes], oc.OffsetCommitResponseTopic] = {}
    right: list[oc.OffsetCommitResponseTopic] = []
    expires_ms = NO_TIME if request.retention_time_ms == NO_TIME else min(now_ms + request.retention_time_ms, MAX_LONG)
    for topic in request.topics:
        found = image.topic_by_id(topic.topic_id) if version >= TOPIC_IDS_SINCE else image.topics.get(topic.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_SINCE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = topic.name if found is None else found.name
        own = oc.OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if found is None:
                error = unknown
            elif partition.partition_index not in found.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = oc.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            if error or found is None:
                slot = wrong.setdefault(
                    (name, topic.topic_id), oc.OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id)
                )
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
    return Commit(records, oc.Response(topics=_with_wrong(wrong, right)), accepted)


def _with_wrong(
    wrong: dict[tuple[str, bytes], oc.OffsetCommitResponseTopic], right: list[oc.OffsetCommitResponseTopic]
) -> list[oc.OffsetCommitResponseTopic]:
    """The topics of the answer, as Kafka has them: one named twice is there twice, unless any topic has an error."""
    if not wrong:
        return right
    by_topic: dict[tuple[str, bytes], oc.OffsetCommitResponseTopic] = {}
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
        committed = offsets.of_group(self.group_id)
        used = {topic: is_subscribed(topic) for topic in dict.fromkeys(name for name, _ in self.known)}
        for topic, partition in self.known:
            if used[topic]:
                partition.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif partition.partition_index in committed.get(topic, {}):
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
    asked: of.OffsetFetchRequestGroup, version: int, offsets: Offsets, image: MetadataImage
) -> of.OffsetFetchResponseGroup:
    """The answer for one group, in the form of version 8 and later."""
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
                    partitions=[_answer(index, partitions) for index in partitions],
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
            found = committed.get(topic.name if known is None else known.name, {})
            if known is not None:
                # A request by id is not for the offsets of an earlier topic of the same name.
                found = {index: each for index, each in found.items() if each.topic_id in (ZERO_UUID, known.id)}
            answer.partitions = [_answer(index, found) for index in topic.partition_indexes]
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
