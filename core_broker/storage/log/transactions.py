"""How transactions change a log's state: producer state that follows data and markers, and the index of aborted ones.

The `.txnindex` of a segment has the producer and the offset range of each transaction whose abort marker is in the
segment, in Kafka's format (KIP-98). It is derived from the log: each recovery of the segment rebuilds it.
"""

from __future__ import annotations

import struct

from ....protocol.batch_layout import CONTROL, LENGTH_OVERHEAD, TRANSACTIONAL
from ....protocol.records import CorruptBatch, build_batch, decode_batch
from ..disk.files import Files
from ._producers import ProducerStates
from ._segment import Segment
from .file_names import TRANSACTION_INDEX_SUFFIX
from .index_files import ABORTED_ENTRY, AbortedTransaction, decode_aborted, encode_aborted

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_END_MARKER = struct.Struct(">hi")  # version, coordinator epoch
ABORT = 0
COMMIT = 1
MARKER_VERSION = 0


class TransactionIndex:
    """Functions over a segment's `.txnindex`; most segments have none."""

    @staticmethod
    def append(files: Files, segment: Segment, aborted: AbortedTransaction) -> None:
        segment.has_aborted = True
        file = files.open(segment.path(TRANSACTION_INDEX_SUFFIX))
        try:
            file.append([encode_aborted(aborted)])
        finally:
            file.close()
        segment.synced = False

    @staticmethod
    def read(files: Files, segment: Segment) -> list[AbortedTransaction]:
        if segment.aborted is not None:
            return segment.aborted
        if segment.has_aborted is False:
            return []  # each read_committed fetch asks this for each segment up to the log's end
        path = segment.path(TRANSACTION_INDEX_SUFFIX)
        segment.has_aborted = files.exists(path)
        if not segment.has_aborted:
            return []
        return decode_aborted(files.read(path))

    @staticmethod
    def remove(files: Files, segment: Segment) -> bool:
        """Remove the index. Returns whether there was one."""
        path = segment.path(TRANSACTION_INDEX_SUFFIX)
        there = files.exists(path)
        if there:
            files.unlink(path)
        return there

    @staticmethod
    def truncate(files: Files, segment: Segment, offset: int) -> None:
        """Forget markers at this offset or later."""
        path = segment.path(TRANSACTION_INDEX_SUFFIX)
        if files.exists(path):
            kept = [entry for entry in TransactionIndex.read(files, segment) if entry.last_offset < offset]
            file = files.open(path)
            try:
                file.truncate(len(kept) * ABORTED_ENTRY.size)
            finally:
                file.close()


def follow(
    states: ProducerStates,
    base_offset: int,
    last_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    max_timestamp: int,
    wall_ms: int,
    batch: memoryview | bytes,
) -> AbortedTransaction | None:
    """Update the state of a batch's producer. Returns what an abort marker aborts; only then `batch` is read."""
    if not attributes & CONTROL:
        states.update(producer_id, producer_epoch, base_sequence, base_offset, last_offset, max_timestamp, wall_ms)
        if attributes & TRANSACTIONAL:
            states.begin_transaction(producer_id, base_offset)
            states.end_verification(producer_id)
        return None
    try:
        marker = decode_batch(batch)[0]
        _, kind = _CONTROL_KEY.unpack_from(marker.key or b"")
        _, coordinator_epoch = _END_MARKER.unpack_from(marker.value or b"")
    except (CorruptBatch, IndexError, struct.error):
        return None  # an unknown control record is kept, but ends nothing
    if kind not in (ABORT, COMMIT):
        return None
    start = states.end_transaction(
        producer_id, producer_epoch, coordinator_epoch, last_offset, marker.timestamp_ms, wall_ms
    )
    states.end_verification(producer_id, producer_epoch)
    if kind == COMMIT or start < 0:
        return None
    stable = min(states.unstable.first_open, last_offset + 1)
    return AbortedTransaction(producer_id, start, last_offset, stable)


def end_marker(producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int, wall_ms: int) -> bytes:
    """The batch that ends a producer's transaction."""
    key = _CONTROL_KEY.pack(MARKER_VERSION, COMMIT if is_commit else ABORT)
    value = _END_MARKER.pack(MARKER_VERSION, coordinator_epoch)
    return build_batch(
        [(wall_ms, key, value, ())],
        control=True,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def follow_batch(
    files: Files,
    states: ProducerStates,
    segment: Segment,
    position: int,
    header: tuple[int, ...],
    wall_ms: int,
    index: bool,
) -> None:
    """`follow` for a batch that is already in a segment; `index`: whether aborts go into its `.txnindex`."""
    base, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, producer_epoch, base_sequence, _ = header
    if producer_id < 0:
        return
    batch = segment.file.pread(length + LENGTH_OVERHEAD, position) if attributes & CONTROL else b""
    aborted = follow(
        states,
        base,
        base + delta,
        attributes,
        producer_id,
        producer_epoch,
        base_sequence,
        max_timestamp,
        wall_ms,
        batch,
    )
    if aborted is not None and index:
        TransactionIndex.append(files, segment, aborted)
