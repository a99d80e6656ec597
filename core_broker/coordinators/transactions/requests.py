"""InitProducerId for transactional ids, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.

Each names a transactional id, and the producer id and epoch that its producer has. What is decided is in
`transaction.py`; a request is answered once the record of that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages import add_offsets_to_txn as aot
from ....protocol.messages import add_partitions_to_txn as apt
from ....protocol.messages import end_txn
from ....protocol.messages import init_producer_id as ipi
from ....runtime import Runtime
from ...cluster.image import MetadataImage
from ...cluster.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from ...config import BrokerConfig
from ...purgatory import Pending, Purgatory
from .. import find
from ..find import CoordinatorFinder
from . import transaction
from .host import Ask, TransactionHost
from .shard import Entry
from .transaction import BUMPING, NO_EPOCH, NO_ID, OF_OLD_CLIENTS, Decision, Given, Place, Transaction

MAX_TIMEOUT = "transaction.max.timeout.ms"
FENCED_SINCE = 2  # version from which AddPartitionsToTxn, AddOffsetsToTxn and EndTxn know PRODUCER_FENCED (KIP-588)
INIT_FENCED_SINCE = 4  # the same of InitProducerId
OF_BROKERS_SINCE = 4  # of AddPartitionsToTxn (KIP-890)
RAISES_SINCE = 5  # version of EndTxn whose answer has the next epoch (KIP-890)

Codes = dict[Place, ErrorCode] | ErrorCode  # by partition, or that of all
_STRANGER = Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class TransactionRequests:
    """Every method takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(
        self,
        host: TransactionHost,
        image: MetadataImage,
        config: BrokerConfig,
        runtime: Runtime,
        purgatory: Purgatory,
        finder: CoordinatorFinder,
    ) -> None:
        self._host = host
        self._image = image
        self._finder = finder
        self._config = config
        self._runtime = runtime
        self._purgatory = purgatory

    # --- InitProducerId -----------------------------------------------------------------------------------------------

    def init_producer_id(self, request: ipi.Request, version: int) -> Any:
        key, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        assert key
        if not 0 < timeout_ms <= self._config[MAX_TIMEOUT]:
            return _no_id(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        given = None if request.producer_id == NO_ID else Given(request.producer_id, request.producer_epoch)

        def ask(entry: Entry | None, fresh_id: int | None) -> Decision:
            if entry is None:
                if fresh_id is None:
                    return transaction.NEEDS_ID
                known, busy = Transaction(key, fresh_id), False
            else:
                known, busy = entry.current, entry.pending is not None
            return transaction.init_producer_id(
                known, given, timeout_ms, busy=busy, level=self._host.level, fresh_id=fresh_id,
                now_ms=self._runtime.wall_ms(),
            )  # fmt: skip

        def respond(code: ErrorCode, found: Transaction | None) -> ipi.Response:
            if code or found is None:
                return _no_id(_code(code, version, INIT_FENCED_SINCE))
            return ipi.Response(producer_id=found.producer_id, producer_epoch=found.epoch)

        return self._decided(key, ask, respond)

    # --- AddPartitionsToTxn, AddOffsetsToTxn --------------------------------------------------------------------------

    def add_partitions(self, request: apt.Request, version: int) -> Any:
        """Versions of clients name one transaction. Those of brokers name many, and are answered once all are
        decided."""
        if version < OF_BROKERS_SINCE:
            asked = [
                apt.AddPartitionsToTxnTransaction(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    topics=request.v3_and_below_topics,
                )
            ]
        else:
            asked = request.transactions
        results: list[Codes | None] = [None for _ in asked]
        left = len(asked)

        def answer() -> apt.Response:
            codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE if each is None else each for each in results]
            return _added(asked, codes, version)

        if not asked:
            return answer()
        pending = Pending(answer)

        def done(at: int, codes: Codes) -> None:
            nonlocal left
            results[at] = codes
            left -= 1
            if not left:
                pending.complete(answer())

        for at, each in enumerate(asked):
            self._add(each, version, lambda codes, at=at: done(at, codes))  # type: ignore[misc]
        return self._given(pending)

    def _add(self, asked: apt.AddPartitionsToTxnTransaction, version: int, done: Callable[[Codes], None]) -> None:
        places = _places(asked.topics)
        given = Given(asked.producer_id, asked.producer_epoch)
        wrong = {
            place: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for place in places if self._image.partition(*place) is None
        }
        if version < OF_BROKERS_SINCE:  # a client has no business in topics that only brokers write to
            wrong |= {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if place[0] in INTERNAL_TOPICS}
        if wrong:
            done(dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED) | wrong)
            return
        if not asked.transactional_id:
            done(ErrorCode.INVALID_REQUEST)
            return
        if asked.verify_only:
            self._verify(asked.transactional_id, given, places, done)
            return
        client_version = OF_OLD_CLIENTS if version < OF_BROKERS_SINCE else BUMPING

        def respond(code: ErrorCode, found: Transaction | None) -> None:
            done(_code(code, version, FENCED_SINCE))

        self._host.decide(asked.transactional_id, self._adding(given, places, client_version), respond)

    def _adding(self, given: Given, places: Sequence[Place], client_version: int) -> Ask:
        def ask(entry: Entry | None, fresh_id: int | None) -> Decision:
            if entry is None:
                return _STRANGER
            return transaction.add_partitions(
                entry.current, given, places, busy=entry.pending is not None, version=client_version,
                level=self._host.level, now_ms=self._runtime.wall_ms(),
            )  # fmt: skip

        return ask

    def _verify(self, key: str, given: Given, places: Sequence[Place], done: Callable[[Codes], None]) -> None:
        verified: dict[Place, ErrorCode] = {}

        def ask(entry: Entry | None, fresh_id: int | None) -> Decision:
            if entry is None:
                return _STRANGER
            verified.update(transaction.verify(entry.current, given, places))
            return Decision(ErrorCode.NONE)

        def respond(code: ErrorCode, found: Transaction | None) -> None:
            done(code or verified)

        self._host.decide(key, ask, respond)

    def add_offsets(self, request: aot.Request, version: int) -> Any:
        """The partition that holds the group's offsets is added."""
        if not request.transactional_id:
            return aot.Response(error_code=ErrorCode.INVALID_REQUEST)
        pending = Pending(lambda: aot.Response(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))

        def add() -> None:
            topic = self._image.topics.get(CONSUMER_OFFSETS)
            if topic is None:
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
                return
            place = (CONSUMER_OFFSETS, find.partition_for(request.group_id, len(topic.partitions)))
            given = Given(request.producer_id, request.producer_epoch)
            self._host.decide(request.transactional_id, self._adding(given, [place], OF_OLD_CLIENTS), done)

        def done(code: ErrorCode, found: Transaction | None) -> None:
            pending.complete(aot.Response(error_code=_code(code, version, FENCED_SINCE)))

        if CONSUMER_OFFSETS in self._image.topics:
            add()
        else:  # which partition it is depends on how many there are
            self._finder.create(CONSUMER_OFFSETS, add)
        return self._given(pending)

    # --- EndTxn -------------------------------------------------------------------------------------------------------

    def end(self, request: end_txn.Request, version: int) -> Any:
        if not request.transactional_id:
            return end_txn.Response(error_code=ErrorCode.INVALID_REQUEST)
        given, commit = Given(request.producer_id, request.producer_epoch), request.committed

        def ask(entry: Entry | None, fresh_id: int | None) -> Decision:
            if entry is None:
                return _STRANGER
            known, busy, now_ms = entry.current, entry.pending is not None, self._runtime.wall_ms()
            if version < RAISES_SINCE:
                return transaction.end(known, given, commit=commit, busy=busy, now_ms=now_ms)
            return transaction.end_raising(
                known, given, commit=commit, busy=busy, level=self._host.level, fresh_id=fresh_id, now_ms=now_ms
            )

        def respond(code: ErrorCode, found: Transaction | None) -> end_txn.Response:
            if code or found is None or version < RAISES_SINCE:
                return end_txn.Response(error_code=_code(code, version, FENCED_SINCE))
            producer_id, epoch = found.after
            return end_txn.Response(producer_id=producer_id, producer_epoch=epoch)

        return self._decided(request.transactional_id, ask, respond)

    # --- Answers ------------------------------------------------------------------------------------------------------

    def _decided(self, key: str, ask: Ask, respond: Callable[[ErrorCode, Transaction | None], Any]) -> Any:
        """`respond(answer, transaction)` once that is decided and committed: at once, or a Pending."""
        pending = Pending(lambda: respond(ErrorCode.COORDINATOR_NOT_AVAILABLE, None))

        def done(code: ErrorCode, found: Transaction | None) -> None:
            pending.complete(respond(code, found))

        self._host.decide(key, ask, done)
        return self._given(pending)

    def _given(self, pending: Pending) -> Any:
        if pending.done:
            return pending.answer
        return self._purgatory.add(pending, self._config["request.timeout.ms"])


def _no_id(code: int) -> ipi.Response:
    return ipi.Response(error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


def _code(code: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The code in a version of the request: older clients know that they are fenced by another one."""
    if code == ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _places(topics: Sequence[apt.AddPartitionsToTxnTopic]) -> list[Place]:
    """The partitions of a request, each once."""
    return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _added(asked: Sequence[apt.AddPartitionsToTxnTransaction], results: Sequence[Codes], version: int) -> apt.Response:
    if version < OF_BROKERS_SINCE:
        return apt.Response(results_by_topic_v3_and_below=_rows(asked[0].topics, results[0]))
    if ErrorCode.UNSUPPORTED_VERSION in results:
        return apt.Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return apt.Response(
        results_by_transaction=[
            apt.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=_rows(each.topics, codes)
            )
            for each, codes in zip(asked, results, strict=True)
        ]
    )


def _rows(
    asked: Sequence[apt.AddPartitionsToTxnTopic], codes: Codes
) -> list[apt.AddPartitionsToTxnTopicResult]:  # fmt: skip
    """As asked for where all are told the same, else each partition once."""
    if isinstance(codes, ErrorCode):
        return [
            apt.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    apt.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes)
                    for index in topic.partitions
                ],
            )
            for topic in asked
        ]
    by_topic: dict[str, list[apt.AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = apt.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        by_topic.setdefault(topic, []).append(result)
    return [
        apt.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows) for topic, rows in by_topic.items()
    ]
