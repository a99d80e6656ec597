"""Compares the last batch of source and target, because leader epochs do not show every difference.

A source that was restored from an older copy continues under the epoch that its lost records had. Once it has more
records than the target, no fetch shows that the two logs differ. So each partition is compared before its first append,
and again whenever its source was unavailable.
"""

from __future__ import annotations

from ..client import Client, TopicPartition
from ..client.raw import fetch_raw
from ..protocol import records
from ..protocol.batch_layout import DELETE_HORIZON
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import BatchHeader
from .partition import PartitionMirror


def difference(ours: BatchHeader | None, theirs: BatchHeader | None, each: PartitionMirror) -> str | None:
    """How the target's last batch differs from the source's batch at this offset; None if no difference is known.

    ours or theirs None: the batch was deleted. If it is the source's, the fetch from `next_offset` on shows the effect.
    """
    if ours is None or theirs is None:
        return None
    if (ours.base_offset, ours.last_offset, ours.crc) == (theirs.base_offset, theirs.last_offset, theirs.crc):
        return None
    if _cleaned(ours) or _cleaned(theirs):
        return None
    return (
        f"the target ends at offset {each.next_offset} of leader epoch {each.epoch}, with a batch of offsets "
        f"{ours.base_offset} to {ours.last_offset} and CRC {ours.crc:#010x}, but the source has offsets "
        f"{theirs.base_offset} to {theirs.last_offset} with CRC {theirs.crc:#010x}: the source's log was replaced"
    )


async def batch_at(client: Client, tp: TopicPartition, node: int, offset: int) -> BatchHeader | None:
    """The batch with this offset; None if there is none. Raises KafkaError, ClientError."""
    [answer] = await fetch_raw(client, {tp: (offset, -1)}, node_id=node, max_wait_ms=0, partition_max_bytes=1)
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
        raise KafkaError.of(answer.error_code)
    for _, header in records.walk(answer.records):
        if header.last_offset >= offset:
            return header if header.base_offset <= offset else None
    return None


def _cleaned(header: BatchHeader) -> bool:
    """Whether compaction may have rewritten the batch: then its CRC may differ."""
    return header.records_count != header.last_offset_delta + 1 or bool(header.attributes & DELETE_HORIZON)
