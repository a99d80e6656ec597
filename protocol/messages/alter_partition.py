"""AlterPartition (key 56): a leader asks the controller for a new ISR, or says that its recovery is over (KIP-497).

Flexible from the start. v2: topic ids (KIP-841). v3: the ISR with the epochs of its brokers (KIP-903)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    """broker_epoch: -1 when it should not be compared."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    """leader_recovery_state: 1 while the partition recovers from an unclean election (KIP-704)."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class Request(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


class TopicResult(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[PartitionResult] = array(PartitionResult)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)


API = Api(56, "AlterPartition", Request, Response, versions="2-3", flexible="0+")
