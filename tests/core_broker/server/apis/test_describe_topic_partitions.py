"""DescribeTopicPartitions: pages by name, their cursors, and cursors that point nowhere."""

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import describe_topic_partitions as m
from isthmus.protocol.messages.metadata_records import PartitionChangeRecord
from tests.running import run_by

from .serving import serve


def request(*names, limit=2000, cursor=None):
    return m.Request(
        topics=[m.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else m.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def told(answer):
    """Partition indexes by topic, and where the next page begins."""
    cursor = answer.next_cursor
    rows = [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics]
    return rows, None if cursor is None else (cursor.topic_name, cursor.partition_index)


@run_by(serve)
async def test_pages_go_on_at_the_cursor_until_all_is_told(serving, /):
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await serving.topic(name, partitions=count)
    assert told(await serving.ask(request())) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
    assert told(await serving.ask(request(limit=2))) == ([("a", [0, 1])], ("b", 0))
    assert told(await serving.ask(request(limit=3))) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
    assert told(await serving.ask(request(limit=3, cursor=("b", 1)))) == ([("b", [1, 2]), ("c", [0])], None)
    assert told(await serving.ask(request(limit=0))) == ([("a", [0])], ("a", 1))  # never less than one
    assert told(await serving.ask(request("c", "a"))) == ([("a", [0, 1]), ("c", [0])], None)
    assert told(await serving.ask(request(cursor=("bb", 5)))) == ([("c", [0])], None)


@run_by(serve, max_request_partition_size_limit="2")
async def test_the_brokers_own_limit_holds_whatever_is_asked_for(serving, /):
    await serving.topic("a", partitions=3)
    assert told(await serving.ask(request())) == ([("a", [0, 1])], ("a", 2))


@run_by(serve)
async def test_topics_that_are_not_there_and_cursors_that_point_nowhere(serving, /):
    await serving.topic("a")
    answer = await serving.ask(request("no/name", "no", "a"))
    assert [(t.name, t.error_code, len(t.partitions)) for t in answer.topics] == [
        ("a", 0, 1),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    ]
    for cursor in (("b", 0), ("a", -1)):
        (topic,) = (await serving.ask(request("a", cursor=cursor))).topics
        assert (topic.name, topic.error_code, topic.partitions) == ("a", ErrorCode.INVALID_REQUEST, [])


@run_by(serve)
async def test_replicas_that_could_lead_and_those_that_are_gone_are_told(serving, /):
    await serving.topic("a")
    image = serving.image
    change = PartitionChangeRecord(
        partition_id=0, topic_id=image.topics["a"].id, replicas=[1, 2], eligible_leader_replicas=[2], last_known_elr=[2]
    )
    image.apply([change], image.offset + 1, image.epoch)
    [row] = (await serving.ask(request("a"))).topics[0].partitions
    assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([2], [2], [2])
