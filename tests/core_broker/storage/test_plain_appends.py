"""The short way of an append says what the long way says."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage import append as appends
from isthmus.core_broker.storage.append import Origin, check
from isthmus.core_broker.storage.config import LogConfig
from isthmus.core_broker.storage.producers import ProducerStates
from isthmus.core_broker.storage.segment import HEADER, HEADER_SIZE
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import KafkaError

from .support import NOW_MS, batch

HOUR_MS = 60 * 60 * 1000
MAX_INT64 = 2**63 - 1
EXTREMES = st.sampled_from([-(2**63), -2, -1, 0, 1, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, MAX_INT64])


FIELDS = "base length magic crc attributes delta first_time last_time epoch sequence count nothing".split()


@st.composite
def batches(draw, wrong) -> bytes:
    """A batch that can be, but for the one field that may have any value."""

    def field(name, value, others):
        return draw(others) if name == wrong else value

    count = draw(st.integers(1, 4))
    body = draw(st.binary(max_size=60))
    size = HEADER_SIZE + len(body)
    producer_id, sequence = draw(st.sampled_from([(-1, -1), (7, 0), (7, 3), (7, 6), (8, 0), (8, 5)]))
    fields = [
        field("base", 0, st.sampled_from([1, -1, MAX_INT64])),
        field("length", size - 12, st.sampled_from([-1, 0, 48, 49, size - 13, size - 11, 2**31 - 1])),
        draw(st.integers(-1, 3)),
        field("magic", 2, st.sampled_from([-1, 0, 1, 3])),
        0,
        field("attributes", draw(st.integers(0, 4)), st.one_of(st.integers(5, 7), st.integers(-(2**15), 2**15 - 1))),
        -1 if wrong == "nothing" else field("delta", count - 1, st.integers(-2, 5)),
        field("first_time", NOW_MS, EXTREMES),
        field("last_time", NOW_MS, EXTREMES),
        producer_id,
        field("epoch", 0, st.integers(-2, 2)),
        field("sequence", sequence, st.integers(-2, 8)),
        0 if wrong == "nothing" else field("count", count, st.integers(-1, 5)),
    ]
    checked = HEADER.pack(*fields)[21:] + body
    fields[4] = field("crc", crc32c(checked), st.just(0))
    return HEADER.pack(*fields)[:21] + checked


def states(known: bool) -> ProducerStates:
    made = ProducerStates()
    if known:
        made.update(7, 0, 0, 0, 2, NOW_MS, NOW_MS)
        made.update(7, 0, 3, 3, 5, NOW_MS, NOW_MS)
    return made


def outcome(data: bytes, config: LogConfig, known: bool, next_offset: int):
    try:
        plan = check(memoryview(data), Origin.CLIENT, config, states(known), "t-0", next_offset, 5, NOW_MS)
    except KafkaError as error:
        return error.code, error.message
    parts, *rest = plan
    return b"".join(parts), *rest


@pytest.mark.parametrize("wrong", [None, *FIELDS])
@settings(max_examples=80)
@given(st.data())
def test_both_ways_say_the_same(wrong, data):
    records = data.draw(batches(wrong))
    if not data.draw(st.integers(0, 5)):
        records += data.draw(batches(None))
    records = records[: len(records) - data.draw(st.sampled_from([0, 0, 0, 0, 1, 30]))]
    limits = st.sampled_from([{}, {}, {"max_message_bytes": 65}, {"segment_bytes": 65}])
    config = LogConfig(**data.draw(limits))
    given_too = config, data.draw(st.booleans()), data.draw(st.sampled_from([6, 6, MAX_INT64 - 3, MAX_INT64]))
    assert config.keeps_batches
    plain = mock.Mock(wraps=appends._plain)
    with mock.patch.object(appends, "_plain", plain):
        found = outcome(records, *given_too)
    with mock.patch.object(appends, "_plain", lambda *given: None):
        assert outcome(records, *given_too) == found
    plain.assert_called_once()


def test_one_batch_goes_the_short_way_and_two_the_long(monkeypatch):
    """The control of the test before: there are two ways."""
    expected = outcome(batch(3), LogConfig(), False, 6)
    monkeypatch.setattr(appends, "RULES", None)  # without which the long way goes nowhere
    assert outcome(batch(3), LogConfig(), False, 6) == expected
    with pytest.raises(TypeError):
        outcome(batch(3) + batch(1), LogConfig(), False, 6)


def test_what_must_be_changed_or_looked_into_never_goes_the_short_way():
    for config in (
        LogConfig(cleanup_policy="compact"),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(compression_type="lz4"),
        LogConfig(message_timestamp_before_max_ms=HOUR_MS),
    ):
        assert not config.keeps_batches
