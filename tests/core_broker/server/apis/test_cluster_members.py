"""What brokers ask the controller: requests become commands, and results answers."""

from isthmus.core_broker.cluster.features import OUR_VERSION
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    unregister_broker,
    unregister_controller,
    update_features,
)
from isthmus.protocol.messages.metadata_records import FeatureLevelRecord
from tests.running import run_by

from .serving import serve

E = ErrorCode


async def register(serving, broker_id=2, version=broker_registration.API.max_version, **fields):
    """As it comes over the wire, in that version."""
    request = broker_registration.Request(
        broker_id=broker_id,
        cluster_id="cluster-x",
        incarnation_id=fields.pop("incarnation_id", bytes(15) + b"\1"),
        listeners=[broker_registration.Listener(name="PLAINTEXT", host="b2", port=9093)],
        features=[
            broker_registration.Feature(name=name, min_supported_version=0, max_supported_version=high)
            for name, high in (("f", 3), (OUR_VERSION, 0))
        ],
        **fields,
    )
    data = b"".join(broker_registration.API.encode_request(request, version))
    return await serving.ask(broker_registration.API.decode_request(data, 0, version), version)


async def beat(serving, epoch, broker_id=2, **fields):
    offset = fields.pop("current_metadata_offset", serving.image.offset)
    request = broker_heartbeat.Request(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset, **fields
    )  # fmt: skip
    answer = await serving.ask(request)
    return answer.error_code, answer.is_caught_up, answer.is_fenced, answer.should_shut_down


@run_by(serve)
async def test_a_broker_joins_is_unfenced_and_leaves(serving, /):
    answer = await register(serving, rack="r", log_dirs=[b"d" * 16])
    assert (answer.error_code, answer.broker_epoch) == (0, serving.image.offset)
    broker = serving.image.brokers[2]
    assert (broker.rack, broker.endpoints["PLAINTEXT"].port, broker.features) == (
        "r",
        9093,
        {"f": (0, 3), OUR_VERSION: (0, 0)},
    )
    assert (broker.log_dirs, broker.fenced) == ((b"d" * 16,), True)
    epoch = answer.broker_epoch
    assert await beat(serving, epoch, current_metadata_offset=epoch - 1) == (0, False, True, False)
    assert await beat(serving, epoch) == (0, True, False, False)
    assert (await beat(serving, epoch - 1))[0] == E.STALE_BROKER_EPOCH
    again = await register(serving, incarnation_id=bytes(15) + b"\2")
    assert (again.error_code, again.broker_epoch) == (E.DUPLICATE_BROKER_REGISTRATION, -1)
    assert await beat(serving, epoch, want_shut_down=True) == (0, True, True, True)
    for code in (E.NONE, E.BROKER_ID_NOT_REGISTERED):
        assert (await serving.ask(unregister_broker.Request(broker_id=2))).error_code == code


@run_by(serve)
async def test_a_broker_too_old_to_tell_of_a_clean_stop_had_none(serving, /):
    first = await register(serving)
    for version, expected in ((2, -1), (3, 77)):
        seen = []
        submit = serving.controller.submit
        serving.controller.submit = lambda command, *rest, seen=seen, submit=submit: (
            seen.append(command),
            submit(command, *rest),
        )
        await register(serving, version=version, previous_broker_epoch=77)
        serving.controller.submit = submit
        assert seen[0].previous_epoch == expected
    assert serving.image.brokers[2].epoch == first.broker_epoch  # the same process


@run_by(serve)
async def test_the_controller_learns_that_the_connection_of_a_heartbeat_is_lost(serving, /):
    epoch = (await register(serving)).broker_epoch
    assert serving.context.on_lost is None
    await beat(serving, epoch)
    sessions = serving.controller.watch.sessions
    before = sessions.next_deadline_ms()
    serving.context.on_lost()
    assert sessions.next_deadline_ms() < before - 3_000


@run_by(serve)
async def test_producer_ids_are_for_the_epoch_that_is_registered(serving, /):
    epoch = serving.image.brokers[1].epoch
    first = await serving.ask(allocate_producer_ids.Request(broker_id=1, broker_epoch=epoch))
    second = await serving.ask(allocate_producer_ids.Request(broker_id=1, broker_epoch=epoch))
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len > 0
    stale = await serving.ask(allocate_producer_ids.Request(broker_id=1, broker_epoch=epoch + 1))
    assert stale.error_code == E.STALE_BROKER_EPOCH


@run_by(serve)
async def test_a_partition_moves_when_its_leader_says_that_the_new_replica_is_in_sync(serving, /):
    await serving.topic("a")
    epoch = (await register(serving)).broker_epoch
    await beat(serving, epoch)
    row = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1, 2])
    topic = alter_partition_reassignments.ReassignableTopic(name="a", partitions=[row])
    answer = await serving.ask(alter_partition_reassignments.Request(topics=[topic]))
    assert answer.responses[0].partitions[0].error_code == 0
    image = serving.image.topics["a"]
    assert (image.partitions[0].replicas, image.partitions[0].adding_replicas) == ((1, 2), (2,))

    async def alter(version, isr, topic_id=image.id, broker_epoch=serving.image.brokers[1].epoch):
        present = serving.image.topics["a"].partitions[0]
        data = alter_partition.PartitionData(
            partition_index=0, leader_epoch=present.leader_epoch, partition_epoch=present.partition_epoch
        )
        if version == 2:
            data.new_isr = [broker for broker, _ in isr]
        else:
            states = [alter_partition.BrokerState(broker_id=each, broker_epoch=of) for each, of in isr]
            data.new_isr_with_epochs = states
        topic = alter_partition.TopicData(topic_id=topic_id, partitions=[data])
        request = alter_partition.Request(broker_id=1, broker_epoch=broker_epoch, topics=[topic])
        answer = await serving.ask(request, version)
        return answer, answer.topics[0].partitions[0] if answer.topics else None

    _, refused = await alter(3, [(1, -1), (2, epoch + 1)])
    assert (refused.partition_index, refused.error_code, refused.isr) == (0, E.INELIGIBLE_REPLICA, [])
    whole, _ = await alter(3, [(1, -1)], broker_epoch=99)
    assert whole.error_code == E.STALE_BROKER_EPOCH
    _, unknown = await alter(3, [(1, -1)], topic_id=b"x" * 16)
    assert unknown.error_code == E.UNKNOWN_TOPIC_ID
    _, done = await alter(2, [(1, -1), (2, -1)])
    assert (done.error_code, done.leader_id, done.isr, done.partition_epoch) == (0, 1, [1, 2], 2)
    assert not serving.image.topics["a"].partitions[0].is_moving


@run_by(serve)
async def test_features_are_refused_by_name(serving, /):
    update = update_features.FeatureUpdate(feature="no.such", max_version_level=1)
    answer = await serving.ask(update_features.Request(feature_updates=[update]))
    assert (answer.error_code, answer.error_message) == (
        E.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: Invalid update version 1 for "
        "feature no.such. Local controller 1 does not support this feature.",
    )
    update = update_features.FeatureUpdate(feature="group.version", max_version_level=0)
    answer = await serving.ask(update_features.Request(feature_updates=[update]), 1)
    assert [(each.feature, each.error_code) for each in answer.results] == [("group.version", 0)]


@run_by(serve)
async def test_controllers_are_registered(serving, /):
    listener = controller_registration.Listener(name="CONTROLLER", host="c", port=9094)
    request = controller_registration.Request(controller_id=3, incarnation_id=bytes(16), listeners=[listener])
    assert (await serving.ask(request)).error_code == 0
    assert serving.image.controllers[3].endpoints["CONTROLLER"].port == 9094
    answer = await serving.ask(unregister_controller.Request(controller_id=3))
    assert answer.error_code == E.UNSUPPORTED_VERSION  # no metadata.version is finalized
    level = FeatureLevelRecord(name="metadata.version", feature_level=33)
    serving.image.apply([level], serving.image.offset + 1, serving.image.epoch)
    for code in (E.NONE, E.CONTROLLER_ID_NOT_REGISTERED):
        assert (await serving.ask(unregister_controller.Request(controller_id=3))).error_code == code
    assert not serving.image.controllers


@run_by(serve)
async def test_directories_are_assigned(serving, /):
    await serving.topic("a")
    topic_id, broker = serving.image.topics["a"].id, serving.image.brokers[1]

    def wanted(directory, index, epoch=broker.epoch):
        rows = [assign_replicas_to_dirs.PartitionData(partition_index=index)]
        topic = assign_replicas_to_dirs.TopicData(topic_id=topic_id, partitions=rows)
        directories = [assign_replicas_to_dirs.DirectoryData(id=directory, topics=[topic])]
        return assign_replicas_to_dirs.Request(broker_id=1, broker_epoch=epoch, directories=directories)

    for index, code in ((0, E.NONE), (7, E.UNKNOWN_TOPIC_OR_PARTITION)):
        [directory] = (await serving.ask(wanted(b"d" * 16, index))).directories
        [row] = directory.topics[0].partitions
        assert (directory.id, row.partition_index, row.error_code) == (b"d" * 16, index, code)
    assert serving.image.topics["a"].partitions[0].directories == (b"d" * 16,)
    assert (await serving.ask(wanted(b"d" * 16, 0, epoch=99))).error_code == E.STALE_BROKER_EPOCH
