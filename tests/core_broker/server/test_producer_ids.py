"""Producer ids come out of blocks, each once."""

from __future__ import annotations

from isthmus.core_broker.cluster.controller.producer_ids import ProducerIdBlock
from isthmus.core_broker.server.producer_ids import ProducerIds
from isthmus.protocol.errors import ErrorCode


class FakeController:
    """Blocks of three, given when the test says so."""

    def __init__(self):
        self.asked = []
        self.next = 100

    def submit(self, command, callback):
        self.asked.append(callback)

    def give(self, **block):
        block = block or {"first_producer_id": self.next, "count": 3}
        self.next += 3
        self.asked.pop(0)(ProducerIdBlock(**block))


def test_more_who_wait_than_a_block_has_are_served_from_the_next_one():
    controller = FakeController()
    ids = ProducerIds(controller, 1)
    given = []
    for _ in range(7):
        assert ids.take() is None
        ids.wait(given.append)
    for _ in range(3):
        assert len(controller.asked) == 1
        controller.give()
    assert given == [100, 101, 102, 103, 104, 105, 106]
    assert controller.asked == []
    assert [ids.take(), ids.take(), ids.take()] == [107, 108, None]


def test_who_asks_while_served_waits_for_the_next_block():
    controller = FakeController()
    ids = ProducerIds(controller, 1)
    given = []

    def again(producer_id):
        given.append(producer_id)
        if ids.take() is None:
            ids.wait(given.append)

    for _ in range(3):
        ids.wait(again)
    controller.give()
    assert given == [100, 101, 102]
    controller.give()
    assert sorted(given) == [100, 101, 102, 103, 104, 105]


def test_failure_is_told_to_all_who_wait():
    controller = FakeController()
    ids = ProducerIds(controller, 1)
    given = []
    for _ in range(4):
        ids.wait(given.append)
    controller.give(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    assert [error.code for error in given] == [ErrorCode.KAFKA_STORAGE_ERROR] * 4
    assert controller.asked == []
