"""DeleteTopics (20): by name and, from v6 on, by id."""

from __future__ import annotations

from isthmus.protocol.messages import delete_topics as m

from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import fetch_request, fill, metadata_request, offsets_request

SCENARIOS = Scenarios()
IDS_SINCE = 6


def request(case: Case, *names: str) -> m.Request:
    if case.version < IDS_SINCE:
        return m.Request(topic_names=list(names), timeout_ms=10_000)
    return by_state(*((name, bytes(16)) for name in names))


def by_state(*states: tuple[str | None, bytes]) -> m.Request:
    rows = [m.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return m.Request(topics=rows, timeout_ms=10_000)


@SCENARIOS.success(20)
def deletes_a_topic(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(request(case, case.name))
    case.await_gone(case.name)
    case.see(metadata_request(case.name, allow_auto_topic_creation=False))
    case.see(metadata_request(None, topic_id))
    case.see(fetch_request(case, 0, topic_id))
    case.see(offsets_request(case.name, -1))


@SCENARIOS.error(20, ends=True)
def topics_to_delete_within_no_time(case: Case) -> None:
    case.topic()
    for timeout_ms in (0, -1):
        wanted = request(case, case.name, case.name + "-no")
        wanted.timeout_ms = timeout_ms
        case.compare(wanted)
    case.see(metadata_request(case.name, allow_auto_topic_creation=False))


@SCENARIOS.success(20, since=IDS_SINCE)
def deletes_a_topic_by_id(case: Case) -> None:
    case.compare(by_state((None, case.topic())))
    case.await_gone(case.name)


@SCENARIOS.success(20, ends=True)
def deletes_some_of_several_topics(case: Case) -> None:
    case.topic("-a")
    case.topic("-b")
    case.compare(request(case, case.name + "-a", case.name + "-no", case.name + "-b"), only=by_name)
    case.await_gone(case.name + "-b")


@SCENARIOS.success(20, ends=True)
def no_topics_to_delete(case: Case) -> None:
    case.compare(request(case))


@SCENARIOS.success(20, ends=True)
def topic_made_again_is_another_one(case: Case) -> None:
    fill(case, case.topic(), 2)
    case.compare(request(case, case.name))
    case.await_gone(case.name)
    topic_id = case.topic()
    case.see(offsets_request(case.name, -1))
    case.see(fetch_request(case, 0, topic_id))


@SCENARIOS.error(20)
def unknown_topics_to_delete(case: Case) -> None:
    case.compare(request(case, case.name))
    case.compare(request(case, "no/name"))
    case.compare(request(case, ""))


@SCENARIOS.error(20, since=IDS_SINCE)
def topic_ids_to_delete_that_are_refused(case: Case) -> None:
    topic_id = case.topic()
    case.compare(by_state((None, NO_SUCH_ID)))
    case.compare(by_state((None, bytes(16))))  # neither a name nor an id
    case.compare(by_state((case.name, topic_id)))  # both
    case.compare(by_state((None, topic_id), (None, topic_id)), only=by_name)
    case.compare(by_state((case.name, bytes(16)), (None, topic_id)), only=by_name)
    case.await_topic(case.name)


@SCENARIOS.error(20, ends=True)
def topic_to_delete_named_twice(case: Case) -> None:
    case.topic()
    case.compare(request(case, case.name, case.name), only=by_name)
    case.await_topic(case.name)


def by_name(answer: dict) -> dict:
    """Kafka's order is at random."""
    answer["responses"].sort(key=lambda row: (row["name"] or "", row["error_code"]))
    return answer
