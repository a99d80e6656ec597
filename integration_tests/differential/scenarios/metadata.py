"""Metadata (3)."""

from __future__ import annotations

from isthmus.protocol.messages import metadata as m

from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import metadata_request

SCENARIOS = Scenarios()
IDS_SINCE = 10
BY_ID_SINCE = 12


@SCENARIOS.success(3)
def describes_a_topic(case: Case) -> None:
    case.topic(partitions=3)
    case.compare(metadata_request(case.name))


@SCENARIOS.success(3, since=1)
def no_topics(case: Case) -> None:
    case.topic()  # which is not told
    case.compare(m.Request(topics=[]))


@SCENARIOS.success(3, since=1, ends=True)
def all_topics_with_one_of_ours(case: Case) -> None:
    case.topic()

    def ours(answer: dict) -> dict:
        return {**answer, "topics": [topic for topic in answer["topics"] if topic["name"] == case.name]}

    case.compare(m.Request(topics=None), only=ours)


@SCENARIOS.success(3, since=8, ends=True)
def topic_operations(case: Case) -> None:
    case.topic()
    case.compare(metadata_request(case.name, include_topic_authorized_operations=True))
    missing = m.MetadataRequestTopic(name=case.name + "-no")
    case.compare(m.Request(topics=[missing], include_topic_authorized_operations=True, allow_auto_topic_creation=False))


@SCENARIOS.success(3, since=8, until=10)
def cluster_operations(case: Case) -> None:
    case.compare(m.Request(topics=[], include_cluster_authorized_operations=True))


@SCENARIOS.success(3, since=BY_ID_SINCE)
def describes_a_topic_by_id(case: Case) -> None:
    case.compare(metadata_request(None, case.topic()))


@SCENARIOS.success(3, since=BY_ID_SINCE)
def name_and_id_of_one_topic(case: Case) -> None:
    topic_id = case.topic()
    case.compare(metadata_request(case.name, topic_id))
    case.compare(metadata_request(case.name, NO_SUCH_ID))
    rows = [m.MetadataRequestTopic(name=case.name), m.MetadataRequestTopic(name=None, topic_id=topic_id)]
    case.compare(m.Request(topics=rows))


@SCENARIOS.success(3, ends=True)
def topic_asked_for_twice(case: Case) -> None:
    case.topic()
    case.compare(m.Request(topics=[m.MetadataRequestTopic(name=case.name)] * 2))


@SCENARIOS.success(3, ends=True)
def internal_topic_is_marked(case: Case) -> None:
    case.coordinator()
    case.compare(metadata_request("__consumer_offsets"))


@SCENARIOS.success(3, ends=True)
def makes_a_topic_that_is_asked_for(case: Case) -> None:
    case.prepare(metadata_request(case.name), case.version)  # Kafka's first answer may or may not know it yet
    case.await_topic(case.name)
    case.compare(metadata_request(case.name))


@SCENARIOS.error(3)
def wrong_topic_name(case: Case) -> None:
    for name in ("no/name", "", "..", "x" * 250):
        case.compare(metadata_request(name))


@SCENARIOS.error(3, ends=True)
def name_that_collides_is_not_made(case: Case) -> None:
    name = case.name.replace("-", ".")
    case.name = name
    case.topic(".x")
    case.compare(metadata_request(name + "_x"))


@SCENARIOS.error(3, since=4)
def unknown_topic_is_not_made(case: Case) -> None:
    case.compare(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.error(3, since=BY_ID_SINCE)
def unknown_topic_id(case: Case) -> None:
    topic_id = case.topic()
    case.compare(metadata_request(None, NO_SUCH_ID))
    case.compare(metadata_request(None, bytes(16)))
    rows = [m.MetadataRequestTopic(name=None, topic_id=each) for each in (NO_SUCH_ID, topic_id, NO_SUCH_ID)]
    case.compare(m.Request(topics=rows))


@SCENARIOS.error(3, since=IDS_SINCE, until=BY_ID_SINCE - 1)
def topic_ids_before_they_could_be_asked_for(case: Case) -> None:
    topic_id = case.topic()
    case.compare(metadata_request(case.name, topic_id))
    case.compare(metadata_request(None, topic_id))
    case.compare(metadata_request(None))
