"""DescribeQuorum: the one voter, and that nothing but the metadata log can be asked for."""

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import describe_quorum as m
from tests.running import run_by

from .serving import serve


def request(*topics):
    return m.Request(
        topics=[
            m.TopicRequest(topic_name=name, partitions=[m.PartitionRequest(partition_index=i) for i in indexes])
            for name, indexes in topics
        ]
    )


@run_by(serve)
async def test_the_leader_and_how_far_its_log_is(serving, /):
    before = (await serving.ask(request(("__cluster_metadata", [0])))).topics[0].partitions[0]
    await serving.topic("t")
    answer = await serving.ask(request(("__cluster_metadata", [0])))
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
    assert partition.high_watermark > before.high_watermark
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp > 0
    assert [(n.node_id, [(each.host, each.port) for each in n.listeners]) for n in answer.nodes] == [
        (1, [("broker-1", 9092)])
    ]


@run_by(serve)
async def test_nothing_else_can_be_asked_for(serving, /):
    await serving.topic("t")
    for asked in ([("t", [0])], [("__cluster_metadata", [1])], [("__cluster_metadata", [0]), ("t", [0])]):
        answer = await serving.ask(request(*asked))
        assert [(t.topic_name, [p.partition_index for p in t.partitions]) for t in answer.topics] == asked
        for topic in answer.topics:
            assert [p.error_code for p in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert answer.nodes == []
