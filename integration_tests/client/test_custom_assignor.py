"""An assignor of the user's own on stock Kafka and ours: user data goes both ways, partitions move cooperatively."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from isthmus.client import Admin, Client, Consumer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.assignors import Member, Share, cooperatively
from isthmus.protocol.errors import ErrorCode, KafkaError

TOPIC, GROUP = "custom-assignor", "custom-assignor-group"
LIMIT_S = 60.0
ALL = [0, 1, 2, 3]


class ToTheGreediest:
    """Everything to the member that asks loudest; the leader writes to each how loud that was."""

    name = "greediest"
    is_cooperative = True

    def __init__(self, greed: int, topic: str = TOPIC) -> None:
        self.greed = greed
        self.topic = topic
        self.told = b""

    def user_data(self) -> bytes:
        return b"%d" % self.greed

    def assign(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
        greediest = max(members, key=lambda member: int(members[member].user_data))
        shares = cooperatively({greediest: {self.topic: list(range(counts[self.topic]))}}, members)
        return {member: (shares.get(member, {}), members[greediest].user_data) for member in members}

    def on_assignment(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        self.told = user_data


def owned(consumer: Consumer) -> list[int]:
    return sorted(tp.partition for tp in consumer.assignment())


async def polled(*consumers: Consumer, until: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not until():
            await asyncio.gather(*(each.poll(100) for each in consumers))


def test_members_place_partitions_by_what_they_tell_each_other(bootstrap: str) -> None:
    async def main() -> None:
        client = Client(bootstrap)
        await client.start()
        await Admin(client).create_topics([NewTopic(TOPIC, len(ALL))])
        first, second = ToTheGreediest(1), ToTheGreediest(2)
        one, other = (Consumer(client, GROUP, assignors=[each]) for each in (first, second))
        await one.subscribe([TOPIC])
        await polled(one, until=lambda: owned(one) == ALL)
        await other.subscribe([TOPIC])
        await polled(one, other, until=lambda: owned(other) == ALL and owned(one) == [])
        assert first.told == second.told == b"2"
        first.greed = 3
        one.request_rejoin()
        await polled(one, other, until=lambda: owned(one) == ALL and owned(other) == [])
        second.greed = 4  # of a follower, or of the leader: whoever it is by now
        other.request_rejoin()
        await polled(one, other, until=lambda: owned(other) == ALL and owned(one) == [])
        assert first.told == second.told == b"4"
        stranger = Consumer(client, GROUP)
        await stranger.subscribe([TOPIC])
        with pytest.raises(KafkaError, match="have none of this member's assignors") as told:
            await polled(stranger, until=lambda: False)
        assert told.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for each in (one, other, stranger):
            await each.close()
        await client.close()

    asyncio.run(main())


def test_a_member_of_the_consumer_protocol_does_not_take_user_data_away(bootstrap: str) -> None:
    async def main() -> None:
        client = Client(bootstrap)
        await client.start()
        group, topic = f"{GROUP}-mixed", f"{TOPIC}-mixed"
        await Admin(client).create_topics([NewTopic(topic, 1)])
        assignor = ToTheGreediest(1, topic)
        one = Consumer(client, group, assignors=[assignor])
        await one.subscribe([topic])
        await polled(one, until=lambda: assignor.told == b"1")
        other = Consumer(client, group, group_protocol="consumer")
        await other.subscribe([topic])
        with pytest.raises(KafkaError, match="custom assignor") as told:
            await polled(one, other, until=lambda: False)
        assert told.value.code == ErrorCode.GROUP_ID_NOT_FOUND
        for each in (one, other):
            await each.close()
        await client.close()

    asyncio.run(main())
