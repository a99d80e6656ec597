"""What has to be done so that a topic is as the file says."""

from __future__ import annotations

import pytest

from isthmus.client.admin import NewTopic
from isthmus.deploy.topics import There, new_topic, wanted
from isthmus.deploy.topology import parse

OPTIONS = {"retention.ms": "7", "cleanup.policy": "compact,delete", "segment.ms": "9"}
IT = There(3, [2], OPTIONS, frozenset({"retention.ms", "cleanup.policy"}))


def topic(partitions: int = 3, factor: int = 2, **options: str) -> NewTopic:
    return NewTopic("t", partitions, factor, {name.replace("_", "."): value for name, value in options.items()})


def changes(new: NewTopic, before: NewTopic | None = None) -> tuple[int | None, dict[str, str | None]]:
    step = IT.step("dc", new, before)
    return (step.count, dict(step.options)) if step else (None, {})


def test_what_is_as_it_is_wanted_is_no_step():
    same = topic(retention_ms="7", cleanup_policy="compact, delete")
    assert (IT.step("dc", same, same), IT.refusals(same), IT.differences(same)) == (None, [], "")
    assert IT.step("dc", topic(), None) is None  # what is set for it, and not in the file, is somebody's


@pytest.mark.parametrize(
    ("new", "before", "count", "options"),
    [
        (topic(5), None, 5, {}),
        (topic(retention_ms="8"), topic(), None, {"retention.ms": "8"}),
        (topic(), topic(retention_ms="7"), None, {"retention.ms": None}),
        (topic(cleanup_policy="compact,delete"), topic(cleanup_policy="compact", retention_ms="1"), None,
         {"retention.ms": None}),
        (topic(), topic(segment_ms="9"), None, {}),  # which somebody has set back already
    ],
)  # fmt: skip
def test_only_what_the_file_says_or_said_is_changed(new, before, count, options):
    assert changes(new, before) == (count, options)


def test_a_step_says_in_words_what_it_changes():
    step = IT.step("dc", topic(4, retention_ms="8"), topic(cleanup_policy="compact,delete"))
    assert step and step.verb == "change"
    assert step.details == (
        "partitions 3 -> 4 (a key's records may go to another partition from then on)",
        "retention.ms 7 -> 8",
        "cleanup.policy compact,delete -> the default",
    )
    made = new_topic("dc", topic(1, 1, retention_ms="8"))
    assert (made.verb, made.details) == ("create", ("1 partition", "1 replica", "retention.ms=8"))


def test_what_cannot_be_is_refused_with_the_way_out():
    [fewer] = IT.refusals(topic(2))
    assert "write partitions: 3" in fewer
    [factor] = IT.refusals(topic(3, 1))
    assert "`isthmus topic replicas t --factor 1`" in factor
    assert len(IT.refusals(topic(1, 1))) == 2


def test_what_up_leaves_as_it_is_is_told():
    told = IT.differences(topic(4, 3, retention_ms="8"))
    assert told == (
        "it has 2 replicas, the file says 3; it has 3 partitions, the file says 4; "
        "its retention.ms is 7, the file says 8"
    )


def test_topics_of_a_file_have_the_replicas_and_options_of_their_datacenter():
    text = "name: t\ndatacenters: {dc: {brokers: 3, topics: {a: {}, b: {replication_factor: 2, options: {x: true}}}}}\n"
    assert wanted(parse(text, "t.yaml").datacenters["dc"]) == {
        "a": NewTopic("a", 1, 3, {}),
        "b": NewTopic("b", 1, 2, {"min.insync.replicas": "1", "x": "true"}),
    }
