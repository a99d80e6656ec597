"""Looks into a batch before it is appended: validates its records, and compresses it with the topic's codec.

A large batch takes milliseconds to compress, and a small compressed one may decompress to a large one. So the caller of
an append can do this elsewhere, and pass the result to `Log.append` with the same bytes. All functions are pure.
"""

from __future__ import annotations

from typing import NamedTuple

from ....protocol.batch_layout import ATTRIBUTES, ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE
from ....protocol.errors import KafkaError
from ....protocol.records import BatchSummary, validate_batch, with_codec
from ..disk.files import Buffer
from .log_config import LogConfig

SMALL_BYTES = 16 * 1024  # an uncompressed batch up to this size is inspected by the append itself


class Inspection(NamedTuple):
    """The result for one batch, and the options it depends on."""

    codec: int | None
    level: int | None
    recoded: bytes | None  # None: the batch has the right codec, or any is allowed
    summary: BatchSummary | None
    error: KafkaError | None  # the batch cannot be read

    def of(self, codec: int | None, level: int | None) -> Inspection | None:
        """This result, if the options are still the same."""
        return self if (self.codec, self.level) == (codec, level) else None


def is_large(batch: Buffer, config: LogConfig) -> bool:
    """Whether inspecting a batch takes so long that other requests should not wait for it."""
    size = len(batch)
    if size < HEADER_SIZE or size > config.max_message_bytes:
        return False  # it is refused by its size
    codec = ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0] & CODEC_MASK
    if not config.looks_into or (codec == config.codec and not config.looks_at_records):
        return False
    return bool(codec) or size > SMALL_BYTES


def inspect_batch(batch: bytes, config: LogConfig) -> Inspection:
    """Inspect one whole batch."""
    codec, level = config.codec, config.codec_level
    recoded = summary = error = None
    try:
        if codec is not None and ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0] & CODEC_MASK != codec:
            recoded, summary = with_codec(batch, 0, codec, level)
        else:
            summary = validate_batch(batch)
    except KafkaError as refused:
        error = refused.with_traceback(None)
    return Inspection(codec, level, recoded, summary, error)
