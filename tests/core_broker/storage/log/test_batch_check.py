"""The one check of a batch against its conditions one by one, and what the long way of an append makes of reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage.log import batch_reasons as why
from isthmus.core_broker.storage.log._batch_check import reasons_of
from isthmus.core_broker.storage.log._producers import ProducerBatch, ProducerStates
from isthmus.core_broker.storage.log.append import RULES, Origin, check
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.batch_layout import HEADER_SIZE
from isthmus.protocol.errors import ErrorCode, KafkaError

from ..support import NOW_MS, batch
from .odd_batches import KNOWN, MAX_INT64, REPEATED, SIZE, WITHIN, Header, batch_with, batches, crc_of, known_producers

E = ErrorCode


class Case(NamedTuple):
    """What a batch is compared with, and how many bytes there are from its first byte on."""

    origin: Origin
    config: LogConfig
    next_offset: int
    left: int
    crc: int

    @property
    def is_client(self) -> bool:
        return self.origin == Origin.CLIENT

    @property
    def is_limited(self) -> bool:
        return self.origin in (Origin.CLIENT, Origin.COORDINATOR)


Condition = Callable[[Header, Case], bool]

# In the order in which they are looked at: reason, the error that the long way makes of it, when.
ALONE: tuple[tuple[int, ErrorCode | None, Condition], ...] = (
    (why.CUT, None, lambda h, at: at.left < HEADER_SIZE),
    (why.OLD_FORMAT, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, lambda h, at: h.magic in (0, 1)),
    (why.UNKNOWN_FORMAT, E.CORRUPT_MESSAGE, lambda h, at: h.magic != 2),
    (why.SHORT_LENGTH, E.CORRUPT_MESSAGE, lambda h, at: h.length < 49),
    (why.CUT, None, lambda h, at: h.length + 12 > at.left),
    (why.NOT_FROM_ZERO, E.INVALID_RECORD, lambda h, at: at.is_client and h.base != 0),
    (
        why.TOO_LARGE,
        E.MESSAGE_TOO_LARGE,
        lambda h, at: at.is_limited and h.length + 12 > at.config.max_message_bytes,
    ),
    (why.WRONG_CRC, E.CORRUPT_MESSAGE, lambda h, at: h.crc != at.crc),
    (why.NEGATIVE_COUNT, E.INVALID_RECORD, lambda h, at: h.delta < 0 or h.count < 0),
    (why.WRONG_COUNT, E.INVALID_RECORD, lambda h, at: at.is_client and h.count != h.delta + 1),
    (why.CONTROL_RECORDS, E.INVALID_RECORD, lambda h, at: at.is_client and h.attributes & 0x20 != 0),
    (why.NO_SEQUENCE, E.INVALID_RECORD, lambda h, at: at.is_client and h.sequence < 0 <= h.producer_id),
    (why.STAMPED, E.INVALID_TIMESTAMP, lambda h, at: at.is_client and h.attributes & 0x08 != 0),
    (why.UNKNOWN_CODEC, E.UNSUPPORTED_COMPRESSION_TYPE, lambda h, at: at.is_client and h.attributes & 7 > 4),
    (
        why.TOO_LATE,
        E.INVALID_TIMESTAMP,
        lambda h, at: (
            at.is_client
            and not at.config.stamps
            and h.max_timestamp > NOW_MS + at.config.message_timestamp_after_max_ms
        ),
    ),
    (
        why.TOO_EARLY,
        E.INVALID_TIMESTAMP,
        lambda h, at: (
            at.is_client
            and not at.config.stamps
            and 0 <= h.base_timestamp < NOW_MS - at.config.message_timestamp_before_max_ms
        ),
    ),
)
ERRORS = {reason: code for reason, code, _ in ALONE if code is not None}


def expected(header: Header, case: Case) -> int:
    for reason, _, is_so in ALONE:
        if is_so(header, case):
            return reason
    size, delta = header.length + 12, header.delta
    is_followed = case.left > size
    is_next = KNOWN.get(header.producer_id) == (header.producer_epoch, header.sequence) and (
        (header.producer_id in WITHIN) == (header.attributes & 0x10 != 0)
    )
    is_control = header.attributes & 0x20 != 0
    together = (
        (why.FOLLOWED, is_followed),
        (
            why.PRODUCER,
            case.is_limited and header.producer_id >= 0 and not is_control and (is_followed or not is_next),
        ),
        (why.TOO_MUCH, size > 2**31 - 1 or (case.is_limited and size > case.config.segment_bytes)),
        (why.TOO_FAR, (case.next_offset if case.is_limited else header.base) + delta + 1 > MAX_INT64),
    )
    return sum(reason for reason, is_so in together if is_so)


CONFIGS = st.sampled_from(
    [
        *[LogConfig()] * 4,
        LogConfig(max_message_bytes=SIZE),
        LogConfig(max_message_bytes=SIZE - 1),
        LogConfig(segment_bytes=SIZE),
        LogConfig(segment_bytes=SIZE - 1),
        LogConfig(message_timestamp_after_max_ms=0),
        LogConfig(message_timestamp_after_max_ms=MAX_INT64),
        LogConfig(message_timestamp_before_max_ms=1000),
        LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1000),
    ]
)
CASES = st.tuples(
    st.sampled_from(Origin),
    CONFIGS,
    st.sampled_from([*[0] * 6, 10, MAX_INT64 - 3, MAX_INT64 - 2]),
    st.sampled_from([*[0] * 6, 1, HEADER_SIZE - 1, -1, 1 - SIZE]),  # bytes behind the batch, or how many are cut off
)


@settings(max_examples=2000, deadline=None)
@given(batches(), CASES, st.integers(0, 3))
def test_reasons_are_those_of_the_conditions_one_by_one(made, given_case, position):
    data, header = made
    origin, config, next_offset, more = given_case
    data = data + bytes(more) if more >= 0 else data[:more]
    case = Case(origin, config, next_offset, len(data), crc_of(data, header))
    found = reasons_of(
        memoryview(b"?" * position + data),
        position,
        RULES[origin],
        config.limits,
        known_producers(),
        next_offset,
        NOW_MS,
    )
    assert found == expected(header, case)


@settings(max_examples=2000, deadline=None)
@example(batch_with(**REPEATED), (Origin.COORDINATOR, LogConfig(), 0, 0))
@example(batch_with(**REPEATED, count=1), (Origin.CLIENT, LogConfig(), 0, 0))
@example(batch_with(**REPEATED, count=1), (Origin.CLIENT, LogConfig(), 0, 1))
@given(batches(), CASES)
def test_the_long_way_refuses_and_takes_what_the_reasons_say(made, given_case):
    data, header = made
    origin, config, next_offset, more = given_case
    data = data + bytes(more) if more >= 0 else data[:more]
    assume(len(data) - header.length - 12 < HEADER_SIZE)  # else another batch follows, with reasons of its own
    producers = known_producers()
    reasons = reasons_of(memoryview(data), 0, RULES[origin], config.limits, producers, next_offset, NOW_MS)
    outcome = _outcome(data, origin, config, next_offset)
    assigns = origin in (Origin.CLIENT, Origin.COORDINATOR)
    if reasons & why.REFUSAL:
        assert outcome == ERRORS[reasons]
    elif reasons == why.CUT:
        assert outcome == (E.CORRUPT_MESSAGE if assigns else b"")
    elif assigns and not config.keeps_batches:
        pass  # it is looked into, or its header is made anew: test_append.py
    elif reasons & why.PRODUCER and (answer := _of_producers(producers, header, reasons, origin)) is not None:
        assert outcome == answer
    elif not assigns and header.base < next_offset:
        assert outcome == E.OFFSET_OUT_OF_RANGE
    elif reasons & why.TOO_FAR:
        assert outcome == E.INVALID_RECORD
    elif reasons & why.TOO_MUCH:
        assert outcome == E.RECORD_LIST_TOO_LARGE
    else:
        whole = data[: header.length + 12]
        placed = next_offset.to_bytes(8, "big") + whole[8:12] + (4).to_bytes(4, "big") + whole[16:]
        assert outcome == (placed if assigns else whole)


def _outcome(data: bytes, origin: Origin, config: LogConfig, next_offset: int) -> ErrorCode | ProducerBatch | bytes:
    """The error, the batch that is repeated, or what would be written."""
    try:
        parts, *_, repeated = check(memoryview(data), origin, config, known_producers(), "t-0", next_offset, 4, NOW_MS)
    except KafkaError as error:
        return ErrorCode(error.code)
    return b"".join(parts) if repeated is None else repeated


def _of_producers(
    producers: ProducerStates, header: Header, reasons: int, origin: Origin
) -> ErrorCode | ProducerBatch | None:
    """What is known of its producer: the error, or the batch that is repeated; None if it may write this one."""
    last = (header.sequence + header.delta) & (2**31 - 1)
    first = header.sequence if origin is Origin.CLIENT else -1
    is_transactional = header.attributes & 0x10 != 0
    try:
        repeated = producers.check(header.producer_id, header.producer_epoch, first, last, is_transactional)
    except KafkaError as error:
        return ErrorCode(error.code)
    return E.OUT_OF_ORDER_SEQUENCE_NUMBER if repeated is not None and reasons & why.FOLLOWED else repeated


def test_half_a_batch_of_an_old_format_behind_others_is_left_out():
    whole = batch(1)
    old = bytearray(batch(1))
    old[16] = 1
    for cut in (HEADER_SIZE, len(old) - 1):
        data = whole + old[:cut]
        assert reasons_of(memoryview(data), len(whole), 0, LogConfig().limits, known_producers(), 1, NOW_MS) == (
            why.OLD_FORMAT
        )
        parts, *_ = check(memoryview(data), Origin.MIRROR, LogConfig(), ProducerStates(), "t-0", 0, 0, NOW_MS)
        assert b"".join(parts) == whole
    with pytest.raises(KafkaError) as caught:
        check(memoryview(whole + old), Origin.MIRROR, LogConfig(), ProducerStates(), "t-0", 0, 0, NOW_MS)
    assert caught.value.code == E.UNSUPPORTED_FOR_MESSAGE_FORMAT
