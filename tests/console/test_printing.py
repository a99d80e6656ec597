"""What `isthmus consume -g` tells its group: all that was printed, at once or as soon as there is a coordinator."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from isthmus.client import TopicPartition
from isthmus.console.records import LOST_TO_A_REBALANCE, Printing
from isthmus.protocol.errors import ErrorCode, KafkaError

TP = TopicPartition("t", 0)


class Group:
    """Takes commits, or refuses them with `error`."""

    group_id = "g"

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.committed: dict[TopicPartition, int] = {}

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        if self.error:
            raise KafkaError(self.error)
        self.committed |= offsets

    async def close(self) -> None:
        pass


def printing(group: Group) -> Printing:
    made = Printing(cast(Any, group), False, 0)
    made.printed[TP] = 7
    return made


def test_what_no_coordinator_took_is_committed_later() -> None:
    group = Group(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    prints = printing(group)
    asyncio.run(prints.commit())
    assert group.committed == {} and prints.printed == {TP: 7}
    group.error = 0
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
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        asyncio.run(printing(Group(ErrorCode.COORDINATOR_NOT_AVAILABLE)).close())
    group = Group()
    asyncio.run(printing(group).close())
    assert group.committed == {TP: 7}
