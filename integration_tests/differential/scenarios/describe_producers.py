"""DescribeProducers (61): what partitions remember of idempotent producers."""

from __future__ import annotations

from isthmus.protocol.messages import describe_producers as m

from ..peer import Case, Scenarios
from ..requests import fill, new_producer

SCENARIOS = Scenarios()


def request(topic: str, *indexes: int) -> m.Request:
    return m.Request(topics=[m.TopicRequest(name=topic, partition_indexes=list(indexes))])


@SCENARIOS.success(61)
def describes_a_producer(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    producer = new_producer(case)
    for base_sequence in (0, 3):
        fill(
            case, topic_id, producer_id=producer.producer_id, producer_epoch=0, base_sequence=base_sequence
        )  # fmt: skip
    case.compare(request(case.name, 0, 1))


@SCENARIOS.success(61)
def describes_a_producer_of_a_new_epoch(case: Case) -> None:
    topic_id = case.topic()
    producer = new_producer(case)
    for epoch in (0, 1):
        fill(case, topic_id, producer_id=producer.producer_id, producer_epoch=epoch, base_sequence=0)
    case.compare(request(case.name, 0))


@SCENARIOS.success(61)
def no_producers(case: Case) -> None:
    fill(case, case.topic())
    case.compare(request(case.name, 0))
    case.compare(request(case.name))
    case.compare(m.Request(topics=[]))


@SCENARIOS.error(61)
def producers_of_what_is_not_there(case: Case) -> None:
    case.compare(request(case.name, 0))
    case.topic()
    case.compare(request(case.name, 0, 7))
    case.compare(request("no/name", 0))
    case.compare(request("", 0))
