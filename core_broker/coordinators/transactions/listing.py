"""DescribeTransactions and ListTransactions (KIP-664): what this broker coordinates. Nothing is changed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import describe_transactions as dst
from ....protocol.messages import list_transactions as lst
from ...purgatory import Pending, Purgatory
from ..patterns import Pattern, match_in_turns
from ..runtime import Shard, client_error
from .shard import TransactionShard
from .states import BY_NAME, DECIDED, LIVE, State
from .transaction import Place, Transaction

MAX_WAITING = 16  # answers with a pattern, each with all transactions of this broker


def describe(
    request: dst.Request, shard_of: Callable[[str], TransactionShard], left: Callable[[str], Collection[Place]]
) -> dst.Response:
    """shard_of: gives the shard of a transactional id, or raises KafkaError. left: the partitions without a marker of
    one that is decided. An id is described once."""
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        state = dst.TransactionState(transactional_id=transactional_id)
        states.append(state)
        if not transactional_id:
            state.error_code = ErrorCode.INVALID_REQUEST
            continue
        try:
            entry = shard_of(transactional_id).entries.get(transactional_id)
        except KafkaError as error:
            state.error_code = client_error(error.code)
            continue
        if entry is None:
            state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            found = entry.current
            _describe(found, left(transactional_id) if found.state in DECIDED else found.partitions, state)
    return dst.Response(transaction_states=states)


def _describe(found: Transaction, partitions: Collection[Place], state: dst.TransactionState) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    state.transaction_state = found.state.value
    state.transaction_timeout_ms = found.timeout_ms
    state.transaction_start_time_ms = found.start_ms
    state.producer_id = found.producer_id
    state.producer_epoch = found.epoch
    state.topics = [dst.TopicData(topic=topic, partitions=ids) for topic, ids in by_topic.items()]


def listed(request: lst.Request, shards: Sequence[Shard[TransactionShard]], now_ms: int) -> lst.Response:
    """The transactions of all shards that pass the filters but the pattern; an error while any shard is read."""
    if any(
        shard.failure is not None and shard.failure.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for shard in shards
    ):
        return lst.Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in BY_NAME]
    producers = frozenset(request.producer_id_filters)

    def passes(found: Transaction) -> bool:
        return (
            (not producers or found.producer_id in producers)
            and (not request.state_filters or found.state in states)
            and not 0 <= request.duration_filter >= now_ms - found.start_ms
        )

    return lst.Response(
        unknown_state_filters=unknown,
        transaction_states=[
            lst.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.value,
            )
            for shard in shards
            if shard.failure is None
            for found in (entry.current for entry in shard.state.entries.values())
            if passes(found)
        ],
    )


class Patterns:
    """Answers of ListTransactions that a pattern makes shorter, one after the other, in turns of the loop."""

    def __init__(self, purgatory: Purgatory, timeout_ms: float) -> None:
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms
        self._waiting: dict[Pending, tuple[Pattern, lst.Response]] = {}
        self._task: asyncio.Task[None] | None = None

    def shorten(self, answer: lst.Response, pattern: Pattern) -> lst.Response | Pending:
        """The answer with the ids that match: REQUEST_TIMED_OUT if that takes too long, COORDINATOR_LOAD_IN_PROGRESS
        where MAX_WAITING answers are under way already."""
        if len(self._waiting) >= MAX_WAITING:
            return lst.Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        pending = Pending(lambda: lst.Response(error_code=ErrorCode.REQUEST_TIMED_OUT), lambda: self._answered(pending))
        self._waiting[pending] = pattern, answer
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="match transactional ids")
        return self._purgatory.add(pending, self._timeout_ms)

    def _answered(self, pending: Pending) -> None:
        del self._waiting[pending]

    async def _work(self) -> None:
        try:
            while self._waiting:
                pending, (pattern, answer) = next(iter(self._waiting.items()))
                found = await match_in_turns(pattern, (each.transactional_id for each in answer.transaction_states))
                answer.transaction_states = [
                    each for each in answer.transaction_states if each.transactional_id in found
                ]
                pending.complete(answer)
        finally:
            self._task = None

    async def stop(self) -> None:
        """Those who wait hear nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def counts(shards: Sequence[Shard[TransactionShard]]) -> dict[State, int]:
    """How many transactional ids are in each state."""
    found = dict.fromkeys(LIVE, 0)
    for shard in shards:
        for entry in shard.state.entries.values():
            found[entry.current.state] += 1
    return found
