"""What log compaction does to one record batch: take its keys into a map, leave out the records that were replaced.

Follows Kafka's log cleaner and KIP-534: offsets, leader epoch, codec and the producer's sequences of a batch stay;
where it keeps a tombstone for the first time it gets a delete horizon, attribute bit 6, in the place of its base
timestamp. Which batches are looked at, and in which order, is for `core_broker/storage` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ._batch_header import BatchHeader
from ._compaction import COMPILED, SLOT_BYTES, OffsetMap, map_records, mark_records, rewrite_records
from ._records import Section
from .batch_layout import (
    CODEC_MASK,
    CRC,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
)
from .compression import DECOMPRESSED_BYTES_MAX, compress
from .crc import crc32c
from .records import plain_records

if TYPE_CHECKING:
    import random

__all__ = ["COMPILED", "Filtered", "OffsetMap", "delete_horizon_ms", "empty_batch", "filter_batch",
           "map_batch", "new_offset_map", "with_delete_horizon"]  # fmt: skip


class Filtered(NamedTuple):
    """What is left of a batch. `data` is None when it stays as it is, empty when no record is left."""

    kept: int
    data: bytes | None
    max_timestamp: int


def new_offset_map(max_bytes: int, load_factor: float, keys_at_most: int, chance: random.Random) -> OffsetMap:
    """A map that takes at most `max_bytes`, filled up to `load_factor`, no larger than `keys_at_most` keys need.

    Raises ValueError when not even one key would fit.
    """
    wanted = int(max(keys_at_most, 1) / load_factor) + 2
    slots = min(max_bytes // SLOT_BYTES, wanted)
    return OffsetMap(slots, min(int(slots * load_factor), slots - 1), chance.getrandbits(64), chance.getrandbits(64))


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """The time from which the batch's tombstones (of a control batch: its marker) may go; None if it has none yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def map_batch(buf: memoryview, position: int, header: BatchHeader, offsets: OffsetMap, from_offset: int = 0) -> bool:
    """Take the keys of the batch's records from `from_offset` on into the map; False when it was full before the last.

    Raises CorruptBatch.
    """
    source, start, stop = plain_records(buf, position, header, True, DECOMPRESSED_BYTES_MAX)
    return map_records(Section(source, start, stop, header, from_offset), offsets)


def filter_batch(
    buf: memoryview, position: int, header: BatchHeader, offsets: OffsetMap, now_ms: int, new_horizon_ms: int
) -> Filtered:
    """Leave out the records that the map has a later offset for, those without key, and tombstones whose time is over.

    new_horizon_ms: the delete horizon of a batch that keeps a tombstone and has none yet. Raises CorruptBatch.
    """
    source, start, stop = plain_records(buf, position, header, True, DECOMPRESSED_BYTES_MAX)
    horizon = delete_horizon_ms(header)
    marks = bytearray()
    is_over = horizon is not None and horizon <= now_ms
    kept, tombstones = mark_records(Section(source, start, stop, header), offsets, is_over, marks)
    if not kept:
        return Filtered(0, b"", NO_TIMESTAMP)
    if tombstones and horizon is None:
        horizon = new_horizon_ms
    elif kept == header.records_count:
        return Filtered(kept, None, header.max_timestamp)
    return _rewrite(source, start, stop, header, marks, kept, horizon)


def with_delete_horizon(buf: memoryview, position: int, header: BatchHeader, horizon_ms: int) -> Filtered:
    """The batch with all its records and a delete horizon."""
    source, start, stop = plain_records(buf, position, header, True, DECOMPRESSED_BYTES_MAX)
    count = header.records_count
    if not count:
        return Filtered(0, b"", NO_TIMESTAMP)
    return _rewrite(source, start, stop, header, bytearray(b"\1" * count), count, horizon_ms)


def _rewrite(
    source: bytes | memoryview,
    start: int,
    stop: int,
    header: BatchHeader,
    marks: bytearray,
    kept: int,
    horizon: int | None,
) -> Filtered:
    section = Section(source, start, stop, header)
    out, base_timestamp, max_timestamp = rewrite_records(
        section, marks, kept, stop - start, horizon is not None, horizon or 0
    )
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
    if header.codec:
        with memoryview(out) as plain:
            packed = compress(header.codec, plain[HEADER_SIZE:])
        out[HEADER_SIZE:] = packed
    attributes = header.attributes & ~DELETE_HORIZON
    if horizon is not None:
        attributes |= DELETE_HORIZON
    _pack_header(out, header, attributes, base_timestamp, max_timestamp, kept)
    return Filtered(kept, bytes(out), max_timestamp)


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records: it still says its offsets and its producer's last sequence."""
    out = bytearray(HEADER_SIZE)
    attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    _pack_header(out, header, attributes, NO_TIMESTAMP, header.max_timestamp, 0)
    return bytes(out)


def _pack_header(
    out: bytearray, header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> None:
    HEADER.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - LENGTH_OVERHEAD,
        header.partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    CRC.pack_into(out, CRC_AT, crc32c(memoryview(out)[CRC_FROM:]))
