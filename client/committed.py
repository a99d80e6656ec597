"""The committed offsets of a group, for its consumers and for an Admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..protocol.errors import KafkaError
from ..protocol.messages import offset_fetch
from .errors import ClientError
from .membership import Membership
from .types import TopicPartition

NAMES_UP_TO = 9  # versions of OffsetFetch that name topics


class Committed(NamedTuple):
    """A committed offset. leader_epoch: of the record before it; -1 if it was not committed."""

    offset: int
    leader_epoch: int


async def fetch_committed(
    membership: Membership, tps: Sequence[TopicPartition] | None, timeout_ms: float
) -> dict[TopicPartition, Committed]:
    """Committed offsets of a group; of all partitions that have one when `tps` is None."""
    topics: dict[str, list[int]] = {}
    for tp in tps or ():
        topics.setdefault(tp.topic, []).append(tp.partition)
    asked = (
        None
        if tps is None
        else [offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in topics.items()]
    )
    request = offset_fetch.Request(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=membership.group_id, topics=asked)], require_stable=True
    )
    what = f"committed offsets of group {membership.group_id}"
    async with membership.client.operation(what, timeout_ms) as operation:
        while True:
            error: KafkaError | ClientError
            try:
                [group] = (await membership.ask(request, most_version=NAMES_UP_TO)).groups
                codes = [group.error_code, *(p.error_code for topic in group.topics for p in topic.partitions)]
                code = next((each for each in codes if each), 0)
                membership.heard(code)
                if not code:
                    return {
                        TopicPartition(topic.name, p.partition_index): Committed(
                            p.committed_offset, p.committed_leader_epoch
                        )
                        for topic in group.topics
                        for p in topic.partitions
                        if p.committed_offset >= 0
                    }
                error = KafkaError.of(code, what)
            except (ClientError, KafkaError) as failed:
                error = failed
            await operation.again(error)
