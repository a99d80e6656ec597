"""What `isthmus consume -g` tells its group: all that was printed, at once or as soon as there is a coordinator."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import OperationTimeout
from isthmus.console.records import LAST_COMMIT_MS, LOST_TO_A_REBALANCE, Printing
from isthmus.deploy.errors import DeployError
from isthmus.protocol.errors import ErrorCode, KafkaError

TP = TopicPartition("t", 0)


class Group:
    """Takes commits, or refuses them with `error`; a hung one takes all the time of a commit."""

    group_id = "g"

    def __init__(self, error: int = 0, hangs: bool = False) -> None:
        self.error = error
        self.hangs = hangs
        self.committed: dict[TopicPartition, int] = {}

    async def commit(self, offsets: dict[TopicPartition, int], timeout_ms: float) -> None:
        if self.hangs:
            raise OperationTimeout(f"commit of group g: not done within {timeout_ms:.0f} ms")
        if self.error:
            raise KafkaError(self.error)
        self.committed |= offsets

    async def close(self) -> None:
        pass


def printing(group: Group) -> Printing:
    made = Printing(cast(Any, group), False, 0)
    made.printed[TP] = 7
    return made


@pytest.mark.parametrize("group", [Group(ErrorCode.COORDINATOR_NOT_AVAILABLE), Group(hangs=True)])
def test_what_no_coordinator_took_is_committed_later(group: Group) -> None:
    prints = printing(group)
    asyncio.run(prints.commit())
    assert group.committed == {} and prints.printed == {TP: 7}
    group.error, group.hangs = 0, False
    asyncio.run(prints.commit())
    assert group.committed == {TP: 7} and prints.printed == {}


@pytest.mark.parametrize("error", LOST_TO_A_REBALANCE)
def test_what_another_member_prints_again_is_not_committed_later(error: int) -> None:
    group = Group(error)
    prints = printing(group)
    asyncio.run(prints.commit())
    assert prints.printed == {}


def test_what_was_printed_of_partitions_that_are_anothers_now_is_forgotten() -> None:
    group = Group(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    prints = printing(group)
    asyncio.run(prints.revoked([TP]))
    assert prints.printed == {}


def test_the_end_says_what_the_group_was_not_told() -> None:
    with pytest.raises(DeployError, match=r"COORDINATOR_NOT_AVAILABLE.*prints again"):
        asyncio.run(printing(Group(ErrorCode.COORDINATOR_NOT_AVAILABLE)).close())
    with pytest.raises(DeployError, match=f"commit of group g: not done within {LAST_COMMIT_MS} ms.*prints again"):
        asyncio.run(printing(Group(hangs=True)).close())
    group = Group()
    asyncio.run(printing(group).close())
    assert group.committed == {TP: 7}
