"""One group member as a process: `python -m integration_tests.clients.member LIBRARY BOOTSTRAP GROUP TOPIC`.

It never commits, and prints a JSON line an event, in the words of Kafka's VerifiableConsumer: `partitions_assigned`,
`partitions_revoked` and `record_data`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

SESSION_MS = 3_000
HEARTBEAT_MS = 500


def say(name: str, **fields: Any) -> None:
    print(json.dumps({"name": name, **fields}), flush=True)


def say_partitions(name: str, partitions: Iterable[Any]) -> None:
    say(name, partitions=[{"topic": tp.topic, "partition": tp.partition} for tp in partitions])


def say_record(record: Any) -> None:
    say("record_data", value=record.value.decode())


def isthmus(bootstrap: str, group: str, topic: str) -> None:
    from isthmus.client import Client, Consumer

    async def main() -> None:
        client = Client(bootstrap)
        await client.start()
        consumer = Consumer(client, group, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS)
        await consumer.subscribe(
            [topic],
            lambda held: say_partitions("partitions_assigned", held),
            lambda held: say_partitions("partitions_revoked", held),
        )
        async for record in consumer:
            say_record(record)

    asyncio.run(main())


def aiokafka(bootstrap: str, group: str, topic: str) -> None:
    import aiokafka

    class Listener(aiokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("partitions_revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("partitions_assigned", assigned)

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
        )  # fmt: skip
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        async for record in consumer:
            say_record(record)

    asyncio.run(main())


def kafka_python(bootstrap: str, group: str, topic: str) -> None:
    import kafka

    class Listener(kafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            say_partitions("partitions_revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            say_partitions("partitions_assigned", assigned)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
    )  # fmt: skip
    consumer.subscribe([topic], listener=Listener())
    for record in consumer:
        say_record(record)


def confluent(bootstrap: str, group: str, topic: str) -> None:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "partition.assignment.strategy": "range",
         "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    )  # fmt: skip
    consumer.subscribe(
        [topic],
        on_assign=lambda _, held: say_partitions("partitions_assigned", held),
        on_revoke=lambda _, held: say_partitions("partitions_revoked", held),
    )
    while True:
        for message in consumer.consume(100, 0.2):
            if message.error():
                print(message.error(), file=sys.stderr, flush=True)
            else:
                say("record_data", value=(message.value() or b"").decode())


MEMBERS = {"isthmus": isthmus, "aiokafka": aiokafka, "kafka-python": kafka_python, "confluent": confluent}

if __name__ == "__main__":
    library, *rest = sys.argv[1:]
    MEMBERS[library](*rest)
