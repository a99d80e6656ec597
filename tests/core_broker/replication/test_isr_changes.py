"""A leader asks the controller for a change of in-sync replicas until it knows what has become of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core_broker.config import BrokerConfig, topic_config
from isthmus.core_broker.replication.isr_changes import RETRY_S, IsrChanges
from isthmus.core_broker.replication.leadership import Leadership
from isthmus.core_broker.replication.partition import Partition
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import alter_partition
from tests.core_broker.ticked import TickedPauses
from tests.running import in_loop, run_by

from .worlds import settle

TOPIC_ID, EPOCH = b"\1" * 16, 5


def led(index: int) -> Partition:
    """A partition that broker 1 leads, in sync alone; broker 2 has all of it."""
    log: Any = SimpleNamespace(log_start_offset=0, log_end_offset=0, tail=None, ranges=None, needs_flush=False)
    leadership = Leadership(1, 0, 30_000, lambda broker, epoch: True, lambda: 1.0)
    partition = Partition("t", TOPIC_ID, index, log, leadership=leadership)
    partition.configure(topic_config({}, BrokerConfig()))
    partition.core.leader_epoch = EPOCH
    partition.place(1, [1, 2], [1])
    return partition


class Asker:
    """`answers`: by request, the rows of each; the last of them to all that follow."""

    def __init__(self, *answers: list[alter_partition.PartitionResult]) -> None:
        self.partitions = [led(0), led(1)]
        self.asked: list[list[int]] = []  # partitions, by request
        self.changes = IsrChanges(1, self._ask, lambda broker_id: 7, {}, 30_000)
        self.pauses = self.changes._pauses = TickedPauses()
        self._answers = list(answers)
        for each in self.partitions:
            change = each.follower_fetched(2, 0, 0, 7)
            assert change is not None
            self.changes.want(each, change)

    async def _ask(self, request: Any, timeout_ms: float) -> Any:
        assert len(self.asked) < 10, "it asks without a pause"
        self.asked.append([row.partition_index for topic in request.topics for row in topic.partitions])
        rows = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        topics = [alter_partition.TopicResult(topic_id=TOPIC_ID, partitions=rows)] if rows else []
        return alter_partition.Response(topics=topics)

    @property
    def isr(self) -> list[list[int]]:
        return [each.isr for each in self.partitions]


def told(index: int, code: int = 0, epoch: int = EPOCH) -> alter_partition.PartitionResult:
    return alter_partition.PartitionResult(
        partition_index=index, error_code=code, leader_id=1, leader_epoch=epoch, isr=[1, 2], partition_epoch=1
    )


@pytest.mark.parametrize("rest", [[], [told(1, ErrorCode.UNKNOWN_SERVER_ERROR)]], ids=["no row", "an error"])
def test_what_the_answer_does_not_tell_of_is_asked_for_again_after_a_pause(
    rest: list[alter_partition.PartitionResult],
) -> None:
    async def history() -> None:
        asker = Asker([told(0), *rest], [told(1)])
        await settle()
        assert asker.isr == [[1, 2], [1]] and asker.asked == [[0, 1]]
        assert (asker.changes.expands, asker.changes.failures) == (1, 1)
        assert asker.partitions[1].leadership.maximal_isr == (1, 2)  # it may have been made
        assert asker.pauses.lengths_s == [RETRY_S]
        asker.pauses.tick()
        await settle()
        assert asker.isr == [[1, 2], [1, 2]] and asker.asked == [[0, 1], [1]]
        await asker.changes.close()

    in_loop(history)


@run_by(in_loop)
async def test_it_is_not_asked_for_any_more_once_metadata_tells_what_has_become_of_it() -> None:
    asker = Asker([])
    await settle()
    asker.partitions[0].place(1, [1, 2], [1, 2], 1)  # it had been made
    asker.pauses.tick()
    await settle()
    assert asker.asked == [[0, 1], [1]] and asker.isr == [[1, 2], [1]]
    asker.partitions[1].place(2, [1, 2], [1], 1)  # it was not, and another one may be
    asker.pauses.tick()
    await settle()
    assert len(asker.asked) == 2 and not asker.pauses.is_pausing
    await asker.changes.close()


@run_by(in_loop)
async def test_an_answer_for_another_leadership_changes_nothing() -> None:
    asker = Asker([told(0), told(1, epoch=EPOCH + 1)])
    asker.partitions[0].close(KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is led by another"))
    await settle()
    assert asker.isr == [[1], [1]] and asker.asked == [[0, 1]]
    assert not asker.pauses.is_pausing and asker.changes.expands == 0
    await asker.changes.close()
