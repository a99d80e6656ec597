"""One group member as a process: `python -m integration_tests.clients.member LIBRARY BOOTSTRAP GROUP TOPIC OPTION...`.

It prints a JSON line an event, in the words of Kafka's VerifiableConsumer: `partitions_assigned`, `partitions_revoked`
and `record_data`. It leaves its group on SIGTERM. Options are those of `Options`, as NAME=VALUE; isthmus and confluent
take them, and a TOPIC that is a pattern and begins with ^. Only confluent commits, and only when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SESSION_MS = 3_000
HEARTBEAT_MS = 500
COMMITTED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Options:
    """assignor: of the classic protocol; instance: of a static member; commits: "yes" for each record it has said."""

    protocol: str = "classic"
    assignor: str = "range"
    instance: str | None = None
    commits: str = "no"


def say(name: str, **fields: Any) -> None:
    print(json.dumps({"name": name, "timestamp": time.time_ns() // 1_000_000, **fields}), flush=True)


def say_partitions(name: str, partitions: Iterable[Any]) -> None:
    say(name, partitions=[{"topic": tp.topic, "partition": tp.partition} for tp in partitions])


def say_record(record: Any) -> None:
    say("record_data", value=record.value.decode())


def isthmus(bootstrap: str, group: str, topic: str, options: Options = Options()) -> None:
    from isthmus.client import Client, Consumer

    classic: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "assignors": [options.assignor],
    }

    async def main() -> None:
        client = Client(bootstrap)
        await client.start()
        consumer = Consumer(
            client,
            group,
            group_protocol=options.protocol,
            group_instance_id=options.instance,
            **(classic if options.protocol == "classic" else {}),
        )
        await consumer.subscribe(
            [] if topic.startswith("^") else [topic],
            lambda held: say_partitions("partitions_assigned", held),
            lambda held: say_partitions("partitions_revoked", held),
            pattern=topic if topic.startswith("^") else None,
        )
        ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        while not ending.is_set():
            for records in (await consumer.poll(200)).values():
                for record in records:
                    say_record(record)
        await consumer.close()
        await client.close()

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


def confluent(bootstrap: str, group: str, topic: str, options: Options = Options()) -> None:
    import confluent_kafka

    classic = {
        "partition.assignment.strategy": options.assignor,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": options.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({} if options.instance is None else {"group.instance.id": options.instance}),
            **(classic if options.protocol == "classic" else {}),
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, held: say_partitions("partitions_assigned", held),
        on_revoke=lambda _, held: say_partitions("partitions_revoked", held),
    )
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    while not ending:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            print(message.error(), file=sys.stderr, flush=True)
            continue
        say("record_data", value=(message.value() or b"").decode())
        if options.commits == "yes":
            committed(consumer, message)
    consumer.close()


def committed(consumer: Any, message: Any) -> None:
    """Commit a message; again for so long, while the library says that the coordinator is not there."""
    import confluent_kafka

    codes = confluent_kafka.KafkaError
    away = (codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR)
    deadline = time.monotonic() + COMMITTED_WITHIN_S
    while True:
        try:
            consumer.commit(message=message, asynchronous=False)
            return
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in away or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


MEMBERS = {"isthmus": isthmus, "aiokafka": aiokafka, "kafka-python": kafka_python, "confluent": confluent}

if __name__ == "__main__":
    library, bootstrap, group, topic, *rest = sys.argv[1:]
    options = [Options(**dict(each.split("=", 1) for each in rest))] if rest else []
    MEMBERS[library](bootstrap, group, topic, *options)
