"""Checks of a Produce request's form, before any log is asked. The rules for odd requests are Kafka's.

A batch of an unknown format, or of a transaction that the request does not name, fails the whole request. Any other
fault of form fails its partition alone. If a partition is named more than once, the last batch of a right form is
appended. If one of the others has a fault, the answer has that fault and does not mention the append. A topic without
partitions is not in the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...protocol.batch_layout import (
    ATTRIBUTES_LOW_AT,
    CODEC_MASK,
    FORM,
    FORM_AND_ATTRIBUTES,
    HEADER_SIZE,
    LENGTH,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from ...protocol.compression import codec_id
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import PartitionProduceData, Request, TopicProduceData

LEAST_LENGTH = 14  # the least length that a batch of any format claims
ZSTD = codec_id("zstd")
ZSTD_SINCE = 7  # version of this request

Topic = tuple[str, bytes]  # name, id: as the request has it
Faults = Mapping[Topic, Mapping[int, KafkaError]]  # by partition
NO_FAULTS: Mapping[Any, Any] = MappingProxyType({})


def is_usual(topics: list[TopicProduceData], in_transaction: bool) -> bool:
    """Whether each partition is named once and gets one batch of the present format, of no transaction unless the
    request names one.

    Nearly every request is. Only a log can refuse it then.
    """
    for topic in topics:
        indexes = set()
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_SIZE:
                return False
            length, magic, attributes = FORM_AND_ATTRIBUTES.unpack_from(records)
            if length + LENGTH_OVERHEAD != len(records) or magic != MAGIC:
                return False
            if attributes & TRANSACTIONAL and not in_transaction:
                return False
            indexes.add(data.index)
        if not indexes or len(indexes) < len(topic.partition_data):
            return False
    return len(topics) == 1 or len({(topic.name, topic.topic_id) for topic in topics}) == len(topics)


def whole_request_error(request: Request) -> ErrorCode | None:
    """The error that fails a request as a whole, if any. Only the first batch of each partition is looked at."""
    code = next(
        filter(None, (_wrong_head(each.records) for t in request.topic_data for each in t.partition_data)), None
    )
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and request.transactional_id is not None:
        return None
    return code


def _wrong_head(records: Any) -> ErrorCode | None:
    size = 0 if records is None else len(records)
    if size < LENGTH_OVERHEAD:
        return None
    if not _may_be_a_batch(records, 0):
        return ErrorCode.CORRUPT_MESSAGE
    if size < FORM.size:
        return None
    length, magic = FORM.unpack_from(records)
    if (
        magic == MAGIC
        and HEADER_SIZE <= length + LENGTH_OVERHEAD <= size
        and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None


def _may_be_a_batch(records: Any, position: int) -> bool:
    """Whether a batch of any format may begin here, by the bytes there are: at least LENGTH_OVERHEAD."""
    if LENGTH.unpack_from(records, position + LENGTH_AT)[0] < LEAST_LENGTH:
        return False
    return len(records) - position < FORM.size or 0 <= FORM.unpack_from(records, position)[1] <= MAGIC


def named_once(topics: list[TopicProduceData]) -> dict[Topic, list[int]]:
    """The partitions of a request by topic, each once."""
    found: dict[Topic, dict[int, None]] = {}
    for topic in topics:
        for data in topic.partition_data:
            found.setdefault((topic.name, topic.topic_id), {})[data.index] = None
    return {topic: list(indexes) for topic, indexes in found.items()}


def sorted_out(topics: list[TopicProduceData], version: int) -> tuple[list[TopicProduceData], Faults]:
    """Each topic and partition once, with the batch to append; and the faults of batches of a wrong form."""
    right: dict[Topic, dict[int, PartitionProduceData]] = {}
    faults: dict[Topic, dict[int, KafkaError]] = {}
    count = 0
    for topic in topics:
        key = topic.name, topic.topic_id
        for data in topic.partition_data:
            count += 1
            rows = right.setdefault(key, {})
            fault = form_error(data.records, version)
            if fault is None:
                rows[data.index] = data
            else:
                faults.setdefault(key, {})[data.index] = fault
    if len(right) == len(topics) and count == sum(map(len, right.values())):
        return topics, NO_FAULTS
    once = [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(rows.values()))
        for (name, topic_id), rows in right.items()
    ]
    return once, faults


def form_error(records: Any, version: int) -> KafkaError | None:
    """The fault if there is not exactly one batch of the present format.

    All else is checked by the log. It ignores half a batch after a whole one.
    """
    size = 0 if records is None else len(records)
    if size < FORM.size:
        return KafkaError(ErrorCode.INVALID_RECORD, f"no record batch in {size} bytes")
    length, magic = FORM.unpack_from(records)
    end = length + LENGTH_OVERHEAD
    if end > size:
        return KafkaError(ErrorCode.INVALID_RECORD, f"a batch of {end} bytes in {size} bytes")
    if magic != MAGIC:
        return KafkaError(ErrorCode.INVALID_RECORD, f"record format {magic}: Produce version {version} takes {MAGIC}")
    if version < ZSTD_SINCE and size > ATTRIBUTES_LOW_AT and records[ATTRIBUTES_LOW_AT] & CODEC_MASK == ZSTD:
        return KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_SINCE}, this is {version}"
        )
    more = size - end
    if more >= LENGTH_OVERHEAD:
        if not _may_be_a_batch(records, end):
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"after the batch follow {more} bytes that begin no other")
        if more >= FORM.size and more >= LENGTH.unpack_from(records, end + LENGTH_AT)[0] + LENGTH_OVERHEAD:
            return KafkaError(ErrorCode.INVALID_RECORD, "more than one record batch for a partition")
    return None
