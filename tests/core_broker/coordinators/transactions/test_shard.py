"""The records of `__transaction_state`: byte for byte as Kafka 4.4 writes them, and what a shard keeps of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isthmus.core_broker.coordinators.transactions.shard import TransactionShard, encode_value
from isthmus.core_broker.coordinators.transactions.states import State
from isthmus.core_broker.coordinators.transactions.transaction import Transaction
from isthmus.protocol.errors import DecodeError

KEY = bytes.fromhex("0000000778333738372d66")
ID = "x3787-f"
BASE = Transaction(ID, 3, epoch=0, timeout_ms=60_000)
T0 = frozenset([("t", 0)])

# What Kafka 4.4.0 wrote: the finalized transaction.version, the value, and what it says.
KAFKAS = [
    (
        0, "0000000000000000001e00000000ea6000ffffffff000001a21bf61415ffffffffffffffff",
        replace(BASE, producer_id=30, update_ms=1795765441557),
    ),
    (
        0, "0000000000000000001b00010000ea6003000000010001740000000100000000000001a21bf6137a000001a21bf61376",
        replace(
            BASE, producer_id=27, epoch=1, state=State.PREPARE_ABORT, partitions=T0, start_ms=1795765441398,
            update_ms=1795765441402,
        ),
    ),
    (
        1, "0001000000000000001600010000ea6003020274020000000000000001a21bf610d4000001a21bf610cf0100080000000000000016",
        replace(
            BASE, producer_id=22, epoch=1, state=State.PREPARE_ABORT, partitions=T0, start_ms=1795765440719,
            update_ms=1795765440724, previous_producer_id=22,
        ),
    ),
    (
        2, "0001000000000000000300000000ea600000000001a21bf36cb1ffffffffffffffff0100080000000000000003",
        replace(BASE, update_ms=1795765267633, previous_producer_id=3),
    ),
    (
        2, "0001000000000000000100020000ea600101000001a21bf2ccd5000001a21bf2ccd50100080000000000000001",
        replace(
            BASE, producer_id=1, epoch=2, state=State.ONGOING, start_ms=1795765226709, update_ms=1795765226709,
            previous_producer_id=1,
        ),
    ),
    (
        2, "0001000000000000000400010000ea600401000001a21bf36e9b000001a21bf36e76020008000000000000000402020002",
        replace(
            BASE, producer_id=4, epoch=1, state=State.COMPLETE_COMMIT, start_ms=1795765268086, update_ms=1795765268123,
            previous_producer_id=4, client_version=2,
        ),
    ),
    (
        2, "0001000000000000001800010000ea600301000001a21bf611c2000001a21bf611c2020008000000000000001802020002",
        replace(
            BASE, producer_id=24, epoch=1, state=State.PREPARE_ABORT, start_ms=1795765440962, update_ms=1795765440962,
            previous_producer_id=24, client_version=2,
        ),
    ),
]  # fmt: skip


def shard(level: int = 2) -> TransactionShard:
    return TransactionShard(lambda: level, lambda: 0.0, lambda: None, lambda state: None)


@pytest.mark.parametrize(("level", "value", "transaction"), KAFKAS)
def test_records_are_kafkas_byte_for_byte(level: int, value: str, transaction: Transaction) -> None:
    written = transaction
    if not level:  # its records do not say which id was before
        written = replace(transaction, previous_producer_id=99)
    key, encoded = shard(level).encode((ID, written))
    assert (key, encoded and encoded.hex()) == (KEY, value)
    assert shard().decode(KEY, bytes.fromhex(value)) == (ID, transaction)


def test_partitions_of_one_topic_are_in_one_row() -> None:
    many = replace(BASE, state=State.ONGOING, partitions=frozenset([("t", 2), ("u", 0), ("t", 0)]))
    decoded = shard().decode(*shard().encode((ID, many)))
    assert decoded == (ID, many)
    plain = encode_value(many, 0)
    assert plain.count(b"\0\1t") == 1 and plain.count(b"\0\1u") == 1


def test_a_lowered_level_loses_nothing_of_a_transaction_under_way() -> None:
    for under_way in (replace(BASE, client_version=2), replace(BASE, next_producer_id=8)):
        assert encode_value(under_way, 0) == encode_value(under_way, 2)
    assert encode_value(BASE, 0) != encode_value(BASE, 2)


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_state_in_which_no_transaction_is_cannot_be_read(status: int) -> None:
    value = bytearray(encode_value(BASE, 0))
    value[2 + 8 + 2 + 4] = status & 0xFF
    with pytest.raises(DecodeError, match=f"state {status}"):
        shard().decode(KEY, bytes(value))


def test_records_of_other_kinds_are_skipped() -> None:
    assert shard().decode(b"\0\1\0\0", b"\0\0") is None
    assert shard().decode(KEY, None) == (ID, None)


def test_the_open_transactions_are_those_that_are_ongoing() -> None:
    state = shard()
    ongoing = replace(BASE, state=State.ONGOING)
    state.take(ID, ongoing)
    state.take("y", BASE)
    assert state.open == {ID: state.entries[ID]} and state.entries[ID].current is ongoing
    state.take(ID, replace(BASE, state=State.PREPARE_COMMIT))
    assert state.open == {} and set(state.entries) == {ID, "y"}
    state.take(ID, ongoing)
    state.take(ID, None)
    assert state.open == {} and set(state.entries) == {"y"}
