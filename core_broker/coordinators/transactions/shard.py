"""One partition of `__transaction_state`: the transactions whose ids hash to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....protocol.errors import DecodeError
from ....protocol.messages import transaction_records as records
from ....protocol.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ..runtime import Record
from .states import BY_NUMBER, LIVE, State
from .transaction import LONGER_RECORDS, NO_ID, OF_OLD_CLIENTS, Transaction

PLAIN, LONGER = 0, 1  # versions of a record's value


class Entry:
    """A transactional id: its transaction as it is committed, and the next value while that is being written.

    open_since_s: the time of the loop when an ongoing transaction was known first.
    """

    __slots__ = ("current", "open_since_s", "pending")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: Transaction | None = None
        self.open_since_s = 0.0


class TransactionShard:
    """The `ShardState` of a shard of `__transaction_state`. A record is a transactional id and its Transaction.

    open: the entries with an ongoing transaction. level: gives the finalized transaction.version. time: in seconds, by
    a clock that nobody sets. on_loaded: called when all records have been read, on_unloaded when another broker is the
    coordinator.
    """

    def __init__(
        self,
        level: Callable[[], int],
        time: Callable[[], float],
        on_loaded: Callable[[], None],
        on_unloaded: Callable[[TransactionShard], None],
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self.open: dict[str, Entry] = {}
        self._level = level
        self._time = time
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        transactional_id, transaction = record
        key = records.encode_key(TransactionLogKey(transactional_id=transactional_id))
        return key, None if transaction is None else encode_value(transaction, self._level())

    def decode(self, key: Any, value: Any) -> Record | None:
        known = records.decode_key(key)
        if known is None:
            return None
        found = records.decode_value(value)
        return known.transactional_id, None if found is None else transaction_of(known.transactional_id, found)

    def replay(self, key: Any, value: Any, offset: int, producer_id: int) -> None:
        self.take(key, value)

    def take(self, transactional_id: str, transaction: Transaction | None) -> None:
        """What a record says of an id; None: it is forgotten."""
        if transaction is None:
            self.forget(transactional_id)
            return
        entry = self.entries.get(transactional_id)
        if entry is None:
            entry = self.entries[transactional_id] = Entry(transaction)
        entry.current = transaction
        if transaction.state is not State.ONGOING:
            self.open.pop(transactional_id, None)
        elif transactional_id not in self.open:
            entry.open_since_s = self._time()
            self.open[transactional_id] = entry

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What is written here is part of no transaction itself."""

    def forget(self, transactional_id: str) -> None:
        self.entries.pop(transactional_id, None)
        self.open.pop(transactional_id, None)

    def loaded(self) -> None:
        self._on_loaded()

    def unloaded(self) -> None:
        self._on_unloaded(self)


def encode_value(transaction: Transaction, level: int) -> bytes:
    """In the version of a finalized transaction.version, but never without what the transaction needs: the level may
    have been lowered while it was under way."""
    needs_more = transaction.client_version != OF_OLD_CLIENTS or transaction.next_producer_id != NO_ID
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None if transaction.state is State.EMPTY else _rows(transaction),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if level < LONGER_RECORDS and not needs_more:
        return records.encode_value(value, PLAIN)
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return records.encode_value(value, LONGER)


def _rows(transaction: Transaction) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """Raises DecodeError for a state that no transaction is in."""
    state = BY_NUMBER.get(value.transaction_status)
    if state not in LIVE:
        raise DecodeError(f"transaction {transactional_id!r} in state {value.transaction_status}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (row.topic, index) for row in value.transaction_partitions or () for index in row.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
