"""Stock Kafka, asked which framings of each codec it takes: it looks at every record of a batch before it stores it."""

from __future__ import annotations

import asyncio

from isthmus.client import Admin, Client, NewTopic, TopicPartition
from isthmus.client.raw import append_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.protocol.framings import FRAMINGS

REFUSALS = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_kafka_takes_what_our_table_says(kafka: str) -> None:
    async def main() -> None:
        client = Client(kafka)
        await client.start()
        await Admin(client).create_topics([NewTopic("framings", 1, 1)])
        assert await client.wait_for_topics(["framings"], 30_000) == []
        found = {what: await takes(client, framing.batch()) for what, framing in FRAMINGS.items()}
        await client.close()
        assert found == {what: framing.kafka_takes for what, framing in FRAMINGS.items()}

    asyncio.run(main())


async def takes(client: Client, batch: bytes) -> bool:
    while True:
        try:
            await append_raw(client, TopicPartition("framings", 0), batch)
            return True
        except KafkaError as error:
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # the topic is new
                await client.back_off(0)
                continue
            assert error.code in REFUSALS, error
            return False
