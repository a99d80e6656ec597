"""Produce (key 0): appends batches to partitions.

v0-2: announced and refused, see dispatch. v3: exactly one batch a partition. v7: zstd is allowed. v8: which records
were wrong (KIP-467). v10: where the leader is (KIP-951). v13: topics by id.
acks=0 is never answered; where it fails the connection ends. acks=-1 waits for the high watermark, acks=1 for this
broker's disk as far as the option durability asks for that. A batch of an unknown format, or of a transaction that is
not named, fails the whole request, as in Kafka. A topic that a mirror owns is refused with POLICY_VIOLATION. Batches
that must be checked record by record or recompressed wait for that, see `preparing.py`; the rest of the request is
appended at once. v11: TRANSACTION_ABORTABLE. v12: the batches of a transaction add their partitions to it; before, its
coordinator must know them (KIP-890, `unverified.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    Request,
    Response,
    TopicProduceData,
    TopicProduceResponse,
)
from ...cluster.topic_names import INTERNAL_TOPICS
from ...purgatory import Pending
from ...replication.partition import Partition
from ...replication.waiting import when_acknowledged, why_unacknowledged
from ...storage.log.append import Origin
from ...storage.log.log import AppendInfo
from .._context import CloseConnection, Context
from .._produce import COMPILED, ProduceAtOnce
from .._route import AtOnce
from ..leaders import leader_of
from ..preparing import Work
from ..produce_forms import NO_FAULTS, ZSTD_SINCE, Faults, is_usual, named_once, sorted_out, whole_request_error
from ..record_errors import record_errors
from ..unverified import Unverified, Verified

LEADERS_SINCE = 10
TOPIC_IDS_SINCE = 13
FLEXIBLE_SINCE = 9
ACKS = (-1, 1, 0)
CLIENT = Origin.CLIENT
INTERNAL = frozenset(INTERNAL_TOPICS)
Wait = tuple[Partition, int, PartitionProduceResponse]  # until all before an offset is acknowledged
Appended = tuple[Partition, int, int, KafkaError | None]  # base offset, number of records, why it was refused
Later = tuple[Work, list[PartitionProduceResponse], int]  # an append, and where its answer goes
WHOLE_REQUEST = {  # what fails a request before its partitions are looked at
    ErrorCode.CORRUPT_MESSAGE: "a batch of this request has an unknown format: nothing was appended",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "a batch of this request is of a transaction that the request "
    "does not name: nothing was appended",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the batches of a transaction are of several producers: nothing was "
    "appended",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too many requests wait until their transactions are verified: nothing was appended",
}
NOTHING_VERIFIED: Verified = MappingProxyType({})
NO_PARTITIONS: Mapping[int, Partition] = MappingProxyType({})
LOG_NOT_REACHED = (  # errors whose answers have no log start offset
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)


def short_way(version: int) -> AtOnce | None:
    """What answers a request of this version from its bytes, where it can; see `_produce.py`."""
    if not COMPILED or version < FLEXIBLE_SINCE:
        return None
    return ProduceAtOnce(_after_short_way, version)


def _after_short_way(
    topics: list[tuple[str, bytes, list[Appended]]], acks: int, timeout_ms: int, context: Context
) -> Any:
    """The answer to a request that went the short way, where the disk has refused an append or one has to wait."""
    waits: list[Wait] = []
    answers: list[TopicProduceResponse] = []
    for name, topic_id, parts in topics:
        rows = []
        for partition, base_offset, records, error in parts:
            if error is not None:
                rows.append(_failed(partition.index, error, partition))
                continue
            row = PartitionProduceResponse(
                index=partition.index,
                base_offset=base_offset,
                log_append_time_ms=-1,
                log_start_offset=partition.log.log_start_offset,
            )
            rows.append(row)
            if not partition.core.is_acknowledged(base_offset + records, acks):
                waits.append((partition, base_offset + records, row))
        answers.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=rows))
    response = Response(responses=answers)
    return _wait(waits, acks, response, timeout_ms, context) if waits else response


def handle(request: Request, context: Context) -> Any:
    asked = request.topic_data
    faults: Faults = NO_FAULTS
    in_transaction = request.transactional_id is not None
    if context.version < ZSTD_SINCE or request.acks not in ACKS or not is_usual(asked, in_transaction):
        code = whole_request_error(request)
        if code is not None:
            return _refused(request, code)
        asked, faults = sorted_out(asked, context.version)
    if in_transaction:
        return _after_verification(request, asked, faults, context)
    return _append(request, asked, faults, NOTHING_VERIFIED, context)


def _after_verification(request: Request, asked: list[TopicProduceData], faults: Faults, context: Context) -> Any:
    """`_append`, once it is known that the partitions belong to the transaction."""
    assert request.transactional_id is not None
    try:
        names = [(_name(topic, context), topic) for topic in asked]
        unverified = Unverified(request.transactional_id, names, context)
    except KafkaError as error:
        return _refused(request, ErrorCode(error.code))
    if not unverified.needs_answer:
        return _append(request, asked, faults, unverified.verified, context)
    if not unverified.keep(asked):
        return _refused(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    begun: list[Pending] = []

    def let_go() -> None:
        unverified.abandon()
        _abandon(begun)

    def verified() -> None:
        try:
            answer = _append(request, asked, faults, unverified.verified, context)
        except CloseConnection as closing:
            answer = closing
        if isinstance(answer, Pending):
            begun.append(answer)
            answer.when_done(pending.complete)
            pending.let_on()
        else:
            pending.complete(answer)

    pending = Pending(_no_answer, let_go)
    pending.holds_up = True
    unverified.ask(verified)
    return pending


def _name(topic: TopicProduceData, context: Context) -> str:
    """A topic's name; "" if there is none with its id."""
    if context.version < TOPIC_IDS_SINCE:
        return topic.name
    image = context.services.image.topic_by_id(topic.topic_id)
    return "" if image is None else image.name


def _append(
    request: Request, asked: list[TopicProduceData], faults: Faults, verified: Verified, context: Context
) -> Any:
    """Append the batches. faults: of form. verified: of those that begin a transaction in their partition."""
    acks = request.acks
    version = context.version
    services = context.services
    all_partitions = services.replicas.partitions
    wall_ms = services.runtime.wall_ms()
    waits: list[Wait] = []
    later: list[Later] = []
    topics: list[TopicProduceResponse] = []
    nodes: dict[int, NodeEndpoint] = {}  # leaders, with their addresses, for the answer
    untold: CloseConnection | None = None  # what failed with acks=0; the rest of the request is still appended
    for topic in asked:
        name = _name(topic, context)
        partitions = all_partitions.get(name, NO_PARTITIONS)
        answers: list[PartitionProduceResponse] = []
        wrong = faults.get((topic.name, topic.topic_id), NO_FAULTS)
        for data in topic.partition_data:
            index = data.index
            records = data.records
            partition = partitions.get(index)
            reached = None  # the partition whose log has checked the batch
            told = [] if index in wrong else answers  # if it has a faulty batch, too, the answer has only the fault
            try:
                if partition is None:
                    raise _missing(version, name, index, context)
                permit = verified.get((name, index))
                if isinstance(permit, KafkaError):
                    raise permit
                if acks not in ACKS:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if name in INTERNAL:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
                partition.check_leads()
                reached = partition
                partition.check_clients_append(acks)
                if partition.line is not None or partition.log.config.looks_into:
                    work = services.preparing.begin(partition, records, permit)
                    if work is not None:
                        later.append((work, told, len(told)))
                        told.append(PartitionProduceResponse(index=index))
                        continue
                info = partition.append(records, CLIENT, wall_ms, guard=permit)
            except KafkaError as error:
                if acks == 0:
                    untold = untold or CloseConnection(f"produce with acks=0 to {name}-{index}: {error}")
                    continue
                answer = _failed(index, error, reached)
                if reached is not None:
                    answer.record_errors = record_errors(error, records, reached, wall_ms)
                elif error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= LEADERS_SINCE:
                    answer.current_leader = _leader(name, index, nodes, context)
                told.append(answer)
                continue
            answer = _appended(index, info)
            told.append(answer)
            if not partition.core.is_acknowledged(info.next_offset, acks):
                waits.append((partition, info.next_offset, answer))
        for index, fault in wrong.items():
            refusal = fault if index in partitions else _missing(version, name, index, context)
            if acks == 0:
                untold = untold or CloseConnection(f"produce with acks=0 to {name}-{index}: {refusal}")
            else:
                answers.append(_failed(index, refusal, None))
        topics.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    response = Response(responses=topics, node_endpoints=list(nodes.values()) if version >= LEADERS_SINCE else [])
    if later:
        begun: list[Pending] = []  # what it waits for after its appends
        pending = Pending(_no_answer, lambda: _abandon(begun))
        services.spawn(_append_later(later, waits, response, request, context, pending, begun), "produce")
        if untold is not None:
            raise untold  # at once: later requests of the client are dropped
        return pending
    if acks == 0:
        if untold is not None:
            raise untold
        return None
    if waits:
        return _wait(waits, acks, response, request.timeout_ms, context)
    return response


async def _append_later(
    later: list[Later],
    waits: list[Wait],
    response: Response,
    request: Request,
    context: Context,
    pending: Pending,
    begun: list[Pending],
) -> None:
    """Make the appends that have a place in a line, then answer as `handle` does. All are made, whatever fails.

    begun: takes what `pending` then waits for.
    """
    preparing = context.services.preparing
    outcomes = await asyncio.gather(*(preparing.append(work) for work, _, _ in later), return_exceptions=True)
    for (work, answers, at), outcome in zip(later, outcomes, strict=True):
        partition = work.partition
        if isinstance(outcome, KafkaError):
            if request.acks == 0:
                pending.complete(CloseConnection(f"produce with acks=0 to {partition}: {outcome}"))
                return
            answers[at] = answer = _failed(partition.index, outcome, partition)
            wall_ms = context.services.runtime.wall_ms()
            answer.record_errors = record_errors(outcome, work.batch, partition, wall_ms)
        elif isinstance(outcome, BaseException):
            pending.complete(CloseConnection(f"produce to {partition}: {outcome}"))
            raise outcome
        else:
            answers[at] = answer = _appended(partition.index, outcome)
            if not partition.core.is_acknowledged(outcome.next_offset, request.acks):
                waits.append((partition, outcome.next_offset, answer))
    if request.acks == 0:
        pending.complete(None)
    elif waits and not pending.done:  # else its client has gone
        begun.append(_wait(waits, request.acks, response, request.timeout_ms, context))
        begun[0].when_done(pending.complete)
    else:
        pending.complete(response)


def _no_answer() -> None:
    """Only the appends end this: it has no deadline."""


def _abandon(begun: list[Pending]) -> None:
    for each in begun:
        each.abandon()


def _appended(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=info.first_offset,
        # For a batch that the log has already, Kafka answers its largest timestamp, of either clock.
        log_append_time_ms=info.max_timestamp if info.duplicate else info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _refused(request: Request, code: ErrorCode) -> Response:
    """The answer to a request that fails as a whole. Raises CloseConnection where none is due."""
    if request.acks == 0:
        raise CloseConnection(f"produce with acks=0: {code.name}")
    return Response(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index, error_code=code, base_offset=-1, error_message=WHOLE_REQUEST[code]
                    )
                    for index in indexes
                ],
            )
            for (name, topic_id), indexes in named_once(request.topic_data).items()
        ]
    )


def _missing(version: int, name: str, index: int, context: Context) -> KafkaError:
    if version >= TOPIC_IDS_SINCE and not name:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return context.services.replicas.why_missing(name, index)


def _failed(index: int, error: KafkaError, reached: Partition | None) -> PartitionProduceResponse:
    code = error.code
    answer = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=error.message)
    if reached is not None and code not in LOG_NOT_REACHED:
        answer.log_start_offset = reached.log.log_start_offset
    return answer


def _leader(name: str, index: int, nodes: dict[int, NodeEndpoint], context: Context) -> LeaderIdAndEpoch:
    """Who leads a partition that this broker does not; `nodes` takes the leader's address (KIP-951)."""
    leader = leader_of(name, index, context)
    if leader.host is not None:
        nodes[leader.node_id] = NodeEndpoint(
            node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
        )
    return LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)


def _wait(waits: list[Wait], acks: int, response: Response, timeout_ms: int, context: Context) -> Pending:
    """Answer when all that was appended is acknowledged: by this broker's disk, or by all in-sync replicas."""

    def settle() -> Response:
        for partition, end, answer in waits:
            error = why_unacknowledged(partition, end, acks)
            if error is not None:
                answer.error_code = error.code  # the offset stays, as in Kafka: it is in the log
                answer.error_message = None if partition.failure is None else partition.failure.message
        return response

    ends = ((partition, end) for partition, end, _ in waits)
    return when_acknowledged(ends, acks, settle, context.services.purgatory, timeout_ms)
