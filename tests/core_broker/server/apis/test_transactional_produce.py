"""Produce within transactions: the coordinator is asked before the first batch, and what its answers come to."""

import asyncio

import pytest

from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.server._context import CloseConnection
from isthmus.core_broker.server.verification import Held
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import produce as m
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .serving import serve

E = ErrorCode


class Coordinators:
    """Stands for `Verification`: each question waits for the test's answer, but where that is known at once."""

    def __init__(self):
        self.held = Held(10_000)
        self.asked = []
        self.at_once = None  # what `answer` is given at once for each question

    def ask(self, transactional_id, producer_id, producer_epoch, partitions, **more):
        pending = Pending(lambda: None)
        done = more.pop("done")
        pending.when_done(done)
        self.asked.append(((transactional_id, producer_id, producer_epoch, partitions), more, pending))
        if self.at_once is not None:
            self.answer(**self.at_once)
        return pending

    def answer(self, **errors):
        """For topic t, of the last question; partition N by pN."""
        assert self.asked[-1][2].complete({("t", int(name[1:])): code for name, code in errors.items()})


def coordinators(serving):
    serving.context.services.verification = made = Coordinators()
    return made


def batch(serving, sequence=0, pid=7, epoch=0, transactional=True):
    now = serving.runtime.wall_ms()
    header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence, "transactional": transactional}
    return build_batch([(now, b"k", b"v", ())], **header)


def request(*parts, acks=-1, transactional_id="x", topic="t"):
    rows = [m.PartitionProduceData(index=index, records=memoryview(bytearray(data))) for index, data in parts]
    topics = [m.TopicProduceData(name=topic, partition_data=rows)]
    return m.Request(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def codes(answer):
    return {row.index: row.error_code for topic in answer.responses for row in topic.partition_responses}


def end_of(serving, index=0):
    return serving.replicas.get("t", index).log.log_end_offset


@run_by(serve)
async def test_the_first_batch_waits_for_the_coordinator_and_the_next_one_does_not(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    sent = request((0, batch(serving)))
    memory = sent.topic_data[0].partition_data[0].records
    pending = serving.handle(sent, 12)
    assert asked.asked[0][0] == ("x", 7, 0, {"t": [0]})
    assert asked.asked[0][1] == {"adds": True, "knows_abortable": True, "timeout_ms": 30000}
    assert end_of(serving) == 0
    memory[:] = bytes(len(memory))  # it was the connection's, which goes on
    asked.answer()
    assert codes(pending.answer) == {0: E.NONE}
    assert codes(serving.handle(request((0, batch(serving, 1))), 12)) == {0: E.NONE}
    assert len(asked.asked) == 1 and end_of(serving) == 2


@pytest.mark.parametrize(("version", "adds", "knows"), [(9, False, False), (11, False, True), (12, True, True)])
@run_by(serve)
async def test_what_is_asked_goes_by_the_version(serving, /, version, adds, knows):
    asked = coordinators(serving)
    await serving.topic("t")
    serving.handle(request((0, batch(serving))), version)
    assert (asked.asked[0][1]["adds"], asked.asked[0][1]["knows_abortable"]) == (adds, knows)


@pytest.mark.parametrize(
    ("version", "told", "code"),
    [
        (12, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (12, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (12, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (12, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (12, E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS),
        (12, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
    ],
)
@run_by(serve)
async def test_a_partition_that_is_not_in_the_transaction_gets_nothing(serving, /, version, told, code):
    asked = coordinators(serving)
    await serving.topic("t", 2)
    pending = serving.handle(request((0, batch(serving)), (1, batch(serving))), version)
    asked.answer(p0=told)
    assert codes(pending.answer) == {0: code, 1: E.NONE}
    assert (end_of(serving), end_of(serving, 1)) == (0, 1)
    row = pending.answer.responses[0].partition_responses[0]
    assert (row.base_offset, row.log_start_offset) == (-1, -1)


@pytest.mark.parametrize(("version", "code"), [(11, E.NOT_ENOUGH_REPLICAS), (12, E.CONCURRENT_TRANSACTIONS)])
@run_by(serve)
async def test_a_transaction_that_still_ends_is_asked_about_again_for_a_while(serving, /, version, code):
    asked = coordinators(serving)
    await serving.topic("t")
    pending = serving.handle(request((0, batch(serving))), version)
    questions = 0
    while not pending.done:
        if len(asked.asked) > questions:
            questions = len(asked.asked)
            asked.answer(p0=E.CONCURRENT_TRANSACTIONS)
        await asyncio.sleep(0)
    assert questions > 1
    assert codes(pending.answer) == {0: code}


@run_by(serve)
async def test_what_is_known_at_once_needs_no_wait(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    asked.at_once = {}
    assert codes(serving.handle(request((0, batch(serving))), 11).answer) == {0: E.NONE}
    assert end_of(serving) == 1


@run_by(serve)
async def test_who_is_gone_is_not_asked_about_again(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    asked.at_once = {"p0": E.CONCURRENT_TRANSACTIONS}
    pending = serving.handle(request((0, batch(serving))), 12)
    assert not pending.done
    pending.abandon()
    serving.context.services.purgatory.close()  # whatever waits has waited long enough
    assert len(asked.asked) == 1


@run_by(serve)
async def test_asked_again_it_may_have_ended(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    pending = serving.handle(request((0, batch(serving))), 12)
    asked.answer(p0=E.CONCURRENT_TRANSACTIONS)
    while len(asked.asked) < 2:
        await asyncio.sleep(0)
    asked.answer()
    assert codes(pending.answer) == {0: E.NONE}


@run_by(serve)
async def test_a_marker_meanwhile_makes_the_answer_void(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    pending = serving.handle(request((0, batch(serving))), 11)
    serving.replicas.get("t", 0).write_marker(7, 0, False, 0, 0, serving.runtime.wall_ms())
    asked.answer()
    assert codes(pending.answer) == {0: E.INVALID_TXN_STATE}


@run_by(serve)
async def test_only_those_that_are_not_known_are_asked_about(serving, /):
    asked = coordinators(serving)
    await serving.topic("t", 3)
    serving.handle(request((0, batch(serving))), 12)
    asked.answer()
    sent = request((0, batch(serving, 1)), (1, batch(serving)), (2, batch(serving, -1, -1, -1, False)), (9, b""))
    pending = serving.handle(sent, 12)
    assert asked.asked[1][0][3] == {"t": [1]}
    asked.answer()
    assert codes(pending.answer) == {0: E.NONE, 1: E.NONE, 2: E.NONE, 9: E.UNKNOWN_TOPIC_OR_PARTITION}


@run_by(serve)
async def test_an_older_epoch_is_refused_without_a_question(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    serving.fill("t", 1, producer_id=7, producer_epoch=3, base_sequence=0)
    assert codes(serving.handle(request((0, batch(serving, epoch=2))), 12)) == {0: E.INVALID_PRODUCER_EPOCH}
    assert asked.asked == []


@run_by(serve)
async def test_the_batches_of_a_request_are_of_one_producer(serving, /):
    coordinators(serving)
    await serving.topic("t", 2)
    for other in ({"pid": 8}, {"epoch": 1}):
        sent = request((0, batch(serving)), (1, batch(serving, **other)))
        assert codes(serving.handle(sent, 12)) == {0: E.INVALID_PRODUCER_ID_MAPPING, 1: E.INVALID_PRODUCER_ID_MAPPING}
    with pytest.raises(CloseConnection):
        serving.handle(request((0, batch(serving)), (1, batch(serving, pid=8)), acks=0), 12)


@run_by(serve)
async def test_acks_0_fails_by_the_end_of_the_connection(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    pending = serving.handle(request((0, batch(serving)), acks=0), 12)
    asked.answer(p0=E.INVALID_TXN_STATE)
    assert pending.done and isinstance(pending.answer, CloseConnection)
    pending = serving.handle(request((0, batch(serving)), acks=0), 12)
    asked.answer()
    assert pending.done and pending.answer is None and end_of(serving) == 1


@run_by(serve)
async def test_after_the_answer_it_waits_for_its_replicas(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    partition = serving.replicas.get("t", 0)
    partition.place(1, [1, 2], [1, 2])
    pending = serving.handle(request((0, batch(serving))), 12)
    assert pending.holds_up  # what comes after it on its connection would overtake it
    asked.answer()
    assert not pending.done and not pending.holds_up and end_of(serving) == 1
    partition.follower_fetched(2, 1, 0, -1)
    assert codes(pending.answer) == {0: E.NONE}


@run_by(serve)
async def test_who_has_gone_writes_nothing_and_leaves_its_memory(serving, /):
    asked = coordinators(serving)
    await serving.topic("t")
    asked.held = Held(len(batch(serving)))
    pending = serving.handle(request((0, batch(serving))), 12)
    assert codes(serving.handle(request((0, batch(serving, pid=8))), 12)) == {0: E.NOT_ENOUGH_REPLICAS}
    pending.abandon()
    assert asked.asked[0][2].done and end_of(serving) == 0
    pending = serving.handle(request((0, batch(serving, pid=8))), 12)
    asked.answer()
    assert codes(pending.answer) == {0: E.NONE}
    serving.handle(request((0, batch(serving, pid=9))), 12)
    asked.answer()
    assert end_of(serving) == 2


@run_by(serve)
async def test_verification_can_be_switched_off_for_older_producers_alone(serving, /):
    asked = coordinators(serving)
    await serving.topic("t", 2)
    await serving.set_option("transaction.partition.verification.enable", "false")
    assert codes(serving.handle(request((0, batch(serving))), 11)) == {0: E.NONE}
    assert asked.asked == []
    serving.handle(request((1, batch(serving))), 12)
    assert len(asked.asked) == 1
    await serving.set_option("transaction.partition.verification.enable", "true")
    serving.handle(request((1, batch(serving))), 11)
    assert len(asked.asked) == 2
