"""TxnOffsetCommit: offsets of a group that are written in a producer's transaction (KIP-98, KIP-447, KIP-890).

The coordinator of the transaction is asked first whether the shard is part of it; from version 5 on, it is made so.
Only then the group is asked. The offsets are pending (`pending_offsets.py`) until a marker ends the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import txn_offset_commit as tc
from ...runtime import Runtime
from ..cluster.image import MetadataImage
from ..cluster.topic_names import CONSUMER_OFFSETS
from ..config import BrokerConfig
from ..purgatory import Pending, Purgatory
from ..storage.log._producers import VerificationGuard
from ..storage.log.append import UNSEQUENCED
from . import offsets
from .consumer_groups.commits import check_given, committing_member
from .consumer_groups.group import ConsumerGroup
from .group_host import MAX_GROUPS, GroupHost
from .group_shard import GroupShard
from .offsets import Commit
from .pending_offsets import MAX_PENDING_OFFSETS
from .runtime import Producer, Shard, client_error

LOADING_KNOWN_SINCE = 2  # version: older producers fail for good on COORDINATOR_LOAD_IN_PROGRESS
ABORTABLE_KNOWN_SINCE = 4
ADDS_SINCE = 5  # in place of AddOffsetsToTxn
GROUP_NOT_FOUND_SINCE = 6
EPOCHS_KNOWN_SINCE = 6


class Verification(Protocol):
    """The coordinators of transactions."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Mapping[str, Collection[int]],
        *,
        adds: bool,
        timeout_ms: float,
        done: Callable[[Mapping[tuple[str, int], int]], None],
        knows_abortable: bool,
    ) -> Any:
        """Call `done` with the error codes of partitions that are not part of the transaction. adds: make them so."""


class TxnOffsetRequests:
    """Takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(
        self, host: GroupHost, image: MetadataImage, config: BrokerConfig, runtime: Runtime, purgatory: Purgatory
    ) -> None:
        self._host = host
        self._image = image
        self._config = config
        self._runtime = runtime
        self._purgatory = purgatory

    def txn_offset_commit(self, request: tc.Request, version: int, verification: Verification) -> Any:
        commit = offsets.prepare_commit(
            request,
            version,
            self._image,
            self._runtime.wall_ms(),
            self._config["offset.metadata.max.bytes"],
            offsets.TXN_OFFSET_COMMIT,
        )
        if not commit.accepted:
            return commit.response
        if not request.group_id:
            return commit.fail(ErrorCode.INVALID_GROUP_ID)
        if CONSUMER_OFFSETS not in self._image.topics:
            return commit.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            shard = self._host.shard_of(request.group_id)
        except KafkaError as error:
            return _failed(commit, version, error.code)
        adds = version >= ADDS_SINCE
        if not adds and not self._config["transaction.partition.verification.enable"]:
            return self._write(commit, request, version)
        try:
            guard = shard.partition.begin_verification(
                request.producer_id, request.producer_epoch, UNSEQUENCED, adds, self._runtime.wall_ms()
            )
        except KafkaError as error:
            return _failed(commit, version, error.code)
        if guard is None:  # its coordinator knows of it
            return self._write(commit, request, version)
        return self._verified(shard.index, guard, commit, request, version, verification)

    def _verified(
        self,
        index: int,
        guard: VerificationGuard,
        commit: Commit,
        request: tc.Request,
        version: int,
        verification: Verification,
    ) -> Pending:
        """The answer once the transaction's coordinator has said that the shard is part of it."""
        timeout_ms: int = self._config["request.timeout.ms"]
        pending = Pending(lambda: _failed(commit, version, ErrorCode.REQUEST_TIMED_OUT))

        def done(errors: Mapping[tuple[str, int], int]) -> None:
            if pending.done:
                return  # it was answered: the client may have ended its transaction
            error = errors.get((CONSUMER_OFFSETS, index), ErrorCode.NONE)
            answer = _failed(commit, version, error) if error else self._write(commit, request, version, guard)
            if isinstance(answer, Pending):
                answer.when_done(pending.complete)
            else:
                pending.complete(answer)

        verification.ask(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            {CONSUMER_OFFSETS: [index]},
            adds=version >= ADDS_SINCE,
            timeout_ms=timeout_ms,
            done=done,
            knows_abortable=version >= ABORTABLE_KNOWN_SINCE,
        )
        return self._purgatory.add(pending, timeout_ms + self._host.commit_timeout_ms)

    def _write(self, commit: Commit, request: tc.Request, version: int, guard: VerificationGuard | None = None) -> Any:
        try:
            shard = self._host.shard_of(request.group_id)
            self._check(commit, request, version, shard)
            producer = Producer(request.producer_id, request.producer_epoch)
            self._host.shards.write(shard, commit.records, producer=producer, guard=guard)
        except KafkaError as error:
            return _failed(commit, version, self._host.sure(error.code))
        return self._host.shards.answer(
            shard,
            lambda error: _failed(commit, version, error) if error else commit.response,
            self._host.commit_timeout_ms,
        )

    def _check(self, commit: Commit, request: tc.Request, version: int, shard: Shard[GroupShard]) -> None:
        """Raises KafkaError where the group refuses a commit of this member, or the shard has no place for it."""
        generation = request.generation_id_or_member_epoch
        group = shard.state.groups.get(request.group_id)
        consumers = shard.state.consumer_groups.get(request.group_id)
        error = ErrorCode.NONE
        if consumers is not None:
            _check_epoch(consumers, commit, request, version)
        elif group is not None:
            error = group.check_transactional_commit(request.member_id, request.group_instance_id, generation)
        elif generation >= 0:
            is_known = version >= GROUP_NOT_FOUND_SINCE
            error = ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
        elif shard.state.size >= MAX_GROUPS:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not error and len(shard.state.offsets.pending) + len(commit.records) > MAX_PENDING_OFFSETS:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error:
            raise KafkaError(error)


def _check_epoch(group: ConsumerGroup, commit: Commit, request: tc.Request, version: int) -> None:
    """Raises KafkaError. Older producers know of no epochs; only of a partition they are told in newer words, as by
    Kafka."""
    epoch = request.generation_id_or_member_epoch
    try:
        member = committing_member(group, request.member_id, request.group_instance_id, epoch, None)
    except KafkaError as error:
        if error.code == ErrorCode.STALE_MEMBER_EPOCH and version < EPOCHS_KNOWN_SINCE:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise
    if member is not None and epoch != member.epoch:
        check_given(member, epoch, ((value.topic_id, key.partition) for key, value in commit.records))


def _failed(commit: Commit, version: int, code: int) -> Any:
    """The answer to a commit that is not written, in codes that a producer of this version knows."""
    error = client_error(code)
    if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_KNOWN_SINCE:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return commit.fail(error)
