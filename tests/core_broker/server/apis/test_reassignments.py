"""What moves partitions: with one broker and one directory they may stay, and each other wish has its error."""

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import alter_partition_reassignments as alter
from isthmus.protocol.messages import alter_replica_log_dirs as directories
from isthmus.protocol.messages import list_config_resources as resources
from isthmus.protocol.messages import list_partition_reassignments as listing
from isthmus.protocol.messages import metadata_records as r
from tests.running import run_by

from .serving import serve


@run_by(serve)
async def test_a_partition_may_stay_where_it_is(serving, /):
    await serving.topic("a")
    wishes = {(1,): 0, (): ErrorCode.INVALID_REPLICA_ASSIGNMENT, (2,): ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    for replicas, code in [*wishes.items(), (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)]:
        row = alter.ReassignablePartition(partition_index=0, replicas=None if replicas is None else list(replicas))
        topic = alter.ReassignableTopic(name="a", partitions=[row])
        [answer] = (await serving.ask(alter.Request(topics=[topic]))).responses
        assert [(each.partition_index, each.error_code) for each in answer.partitions] == [(0, code)]


@run_by(serve)
async def test_what_is_on_its_way_is_listed(serving, /):
    await serving.topic("a", partitions=2)
    assert (await serving.ask(listing.Request())).topics == []
    image: MetadataImage = serving.image
    change = r.PartitionChangeRecord(partition_id=1, topic_id=image.topics["a"].id, adding_replicas=[2])
    image.apply([change], image.offset + 1, image.epoch)
    rows = [listing.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1]) for name in ("a", "no")]
    for request in (listing.Request(), listing.Request(topics=rows)):
        [topic] = (await serving.ask(request)).topics
        assert [(each.partition_index, each.replicas, each.adding_replicas) for each in topic.partitions] == [
            (1, [1], [2])
        ]


@run_by(serve)
async def test_there_is_one_directory(serving, /, tmp_path):
    await serving.topic("a")
    rows = [directories.AlterReplicaLogDirTopic(name="a", partitions=[0, 7])]
    for path, codes in (
        (str(tmp_path), [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ("/other", [ErrorCode.LOG_DIR_NOT_FOUND] * 2),
    ):
        request = directories.Request(dirs=[directories.AlterReplicaLogDir(path=path, topics=rows)])
        [topic] = (await serving.ask(request)).results
        assert [each.error_code for each in topic.partitions] == codes


@run_by(serve)
async def test_topics_and_brokers_have_options(serving, /):
    await serving.topic("a")
    found = (await serving.ask(resources.Request())).config_resources
    assert [(each.resource_type, each.resource_name) for each in found] == [(8, "1"), (4, "1"), (2, "a")]
    found = (await serving.ask(resources.Request(resource_types=[2]))).config_resources
    assert [each.resource_name for each in found] == ["a"]
    answer = await serving.ask(resources.Request(resource_types=[2, 7]))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
