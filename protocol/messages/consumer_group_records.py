"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's layouts. `group_records.py` has their types.

A group is the sum of its records: its epoch, its members' subscriptions, the target assignment, what each member has
now, and the topics that regular expressions were found to match.
"""

from __future__ import annotations

from ..schema import Struct, array, int8, int32, int64, nested, octets, string, uuid


class ConsumerGroupMetadataKey(Struct):
    group_id: str = string()


class ConsumerGroupMetadataValue(Struct):
    """metadata_hash: of all topics that members read (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64("0+", tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Struct):
    """The topics' partitions, of before Kafka 4.1: they are not used any more, and removed."""

    group_id: str = string()


class PartitionRacks(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class ConsumerGroupPartitionMetadataValue(Struct):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class ClassicMemberMetadata(Struct):
    """Of a member that speaks the classic protocol: JoinGroup, SyncGroup and Heartbeat."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Struct):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    """assignment_timestamp: when the assignment was made, in ms of the wall clock (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64("0+", tag=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = string()
    member_id: str = string()


class TargetPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Struct):
    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = string()
    member_id: str = string()


class CurrentPartitions(Struct):
    """assignment_epochs: the member's epoch when it was given each of the partitions; null where that is unknown."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentPartitions] = array(CurrentPartitions)
    partitions_pending_revocation: list[CurrentPartitions] = array(CurrentPartitions)


class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Struct):
    """The topics that match. version: of the metadata that was searched; timestamp: when, in ms of the wall clock."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
