"""The table of a partition's states, and the bits that keep the short way away from it."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.core_broker.replication._core import IN_LINE, MIRRORED, NO_APPENDS, NOT_SERVED, TOO_FEW_IN_SYNC
from isthmus.core_broker.replication.states import MEANING, TABLE, Event, State, next_state
from isthmus.core_broker.server._produce import COMPILED
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.running import run_by

from ..server.apis.serving import Serving, serve
from ..storage.support import batch
from .test_partition import make


def error(text: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)


def test_every_state_has_a_meaning_and_can_be_reached_and_closed() -> None:
    assert set(MEANING) == set(State)
    assert set(TABLE.values()) == set(State) - {State.OPENING}
    assert all(next_state(state, Event.CLOSE) is State.CLOSED for state in State)
    assert all(next_state(State.CLOSED, event) is State.CLOSED for event in Event if (event, State.CLOSED) in TABLE)
    with pytest.raises(KeyError):
        next_state(State.OFFLINE, Event.OPENED_TO_LEAD)  # a start makes another partition


def test_what_serves_no_reads_takes_no_appends_either() -> None:
    for meaning in MEANING.values():
        assert meaning.serves_reads or not meaning.takes_appends


def test_the_state_s_owner_keeps_its_bits_and_the_first_reason() -> None:
    partition, _ = make()
    assert (partition.state, partition.core.obstacles) == (State.LEADING, 0)
    partition.enter(Event.APPEND_REFUSED, error("full"))
    assert partition.core.obstacles == NO_APPENDS and partition.failure is None
    partition.takes_appends()
    assert (partition.state, partition.reason, partition.core.obstacles) == (State.LEADING, None, 0)
    partition.enter(Event.LOG_FAILED, error("broken"))
    partition.close(error("deleted"))
    assert partition.state is State.CLOSED and partition.core.obstacles == NOT_SERVED | NO_APPENDS
    assert partition.failure is not None and partition.failure.message == "broken"


def test_owners_set_and_clear_their_own_bit() -> None:
    partition, _ = make(mirror_link="a", min_insync_replicas="2")
    assert partition.core.obstacles == MIRRORED
    partition.place(1, [1, 2], [1])
    partition.line = asyncio.Future(loop=asyncio.new_event_loop())
    assert partition.core.obstacles == MIRRORED | TOO_FEW_IN_SYNC | IN_LINE
    partition.place(1, [1, 2], [1, 2])
    partition.line = None
    assert partition.core.obstacles == MIRRORED


def test_the_high_watermark_never_goes_back() -> None:
    partition, _ = make()
    partition.core.advance_high_watermark(5)
    partition.core.advance_high_watermark(3)
    assert partition.high_watermark == 5


@pytest.mark.skipif(not COMPILED, reason="plain Python has the long way only")
@run_by(serve)
async def test_an_append_by_the_short_way_waits_for_its_high_watermark(serving: Serving, /) -> None:
    """As acks=all will wait for followers: the short way appends, the answer comes with the high watermark."""
    from ..server.produce_worlds import CORRELATION, body_of

    await serving.topic("t", durability="fsync")
    partition = serving.replicas.get("t", 0)
    serving.context.version = 12
    from isthmus.core_broker.server.dispatch import Routes

    frame = memoryview(bytearray(body_of(12, ("t", 0, batch(2)))))
    pending = Routes()[12].answer_at_once(frame, 0, CORRELATION, serving.context)
    assert (partition.log.log_end_offset, partition.high_watermark, pending.done) == (2, 0, False)
    done = asyncio.get_running_loop().create_future()
    pending.when_done(done.set_result)
    [row] = (await done).responses[0].partition_responses
    assert (row.error_code, row.base_offset, partition.high_watermark) == (0, 0, 2)
