"""Batches of which little is wrong, or nothing, and the producers that write them."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from isthmus.core_broker.storage.log._producers import ProducerStates
from isthmus.protocol.batch_layout import HEADER, HEADER_SIZE
from isthmus.protocol.crc import crc32c

from ..support import NOW_MS, batch

MAX_INT64 = 2**63 - 1
CORRECT = -1  # a CRC that stands for the right one
SIZE = len(batch(3))  # of most of them


class Header(NamedTuple):
    """The fields in their order."""

    base: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    count: int


# By producer id: epoch, and the sequence that is next.
KNOWN = {7: (1, 5), 8: (0, 0), 9: (2, 2**31 - 2), 12: (3, 1)}
WITHIN = [12]  # producers with an open transaction


REPEATED = {"producer_id": 8, "producer_epoch": 0, "sequence": 2**31 - 1, "delta": 0}  # producer 8's last batch


def known_producers() -> ProducerStates:
    states = ProducerStates()
    states.update(7, 1, 0, 0, 4, NOW_MS, NOW_MS)
    states.update(8, 0, 2**31 - 1, 5, 5, NOW_MS, NOW_MS)  # after which they begin anew
    states.update(9, 2, 2**31 - 4, 6, 7, NOW_MS, NOW_MS)
    states.update(10, 0, -1, 8, 8, NOW_MS, NOW_MS)  # of which no batch is remembered
    states.update(12, 3, 0, 9, 9, NOW_MS, NOW_MS)
    states.begin_transaction(12, 9)
    return states


HOUR_MS = 60 * 60 * 1000
ODD: dict[str, list[int]] = {
    "base": [1, -1, 10, MAX_INT64, MAX_INT64 - 3, -MAX_INT64 - 1],
    "length": [0, -1, 48, 49, SIZE - 13, SIZE - 11, SIZE, 2**31 - 1, -(2**31)],
    "leader_epoch": [-1, 9],
    "magic": [0, 1, 3, 127, -1, -128],
    "crc": [0, 2**32 - 1],
    "attributes": [1, 4, 5, 7, 0x08, 0x10, 0x20, 0x38, 0x40, 0x80, 0x100, 0x2000, -1],
    "delta": [0, 1, 3, 2**31 - 1, -1, -(2**31)],
    "base_timestamp": [-1, 0, NOW_MS - 1000, NOW_MS - 1001, MAX_INT64, -MAX_INT64 - 1],
    "max_timestamp": [-1, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, NOW_MS + 1, MAX_INT64, -MAX_INT64 - 1],
    "producer_id": [7, 8, 9, 10, 11, 12, -2, MAX_INT64],
    "producer_epoch": [0, 1, 2, 3, -2, 2**15 - 1],
    "sequence": [0, 3, 5, 2**31 - 2, 2**31 - 1, -2],
    "count": [0, 1, 2, 4, -1, 2**31 - 1, -(2**31)],
}
PRODUCER = st.sampled_from(
    [
        *[{}] * 3,
        *[{"producer_id": number, "producer_epoch": epoch, "sequence": at} for number, (epoch, at) in KNOWN.items()],
        *[{"producer_id": 12, "producer_epoch": 3, "sequence": 1, "attributes": 0x10}] * 2,
        {"producer_id": 7, "producer_epoch": 1, "sequence": 0},  # once more, were it of five records
        {"producer_id": 10, "producer_epoch": 0, "sequence": 0},
    ]
)
CHANGES = st.lists(
    st.sampled_from([*ODD]).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(ODD[name]))), max_size=2
)


@st.composite
def batches(draw: Any) -> tuple[bytes, Header]:
    """A batch of which at most two fields are odd or damaged, and its header."""
    data = bytearray(batch(3))
    header = Header(*HEADER.unpack_from(data))._replace(crc=CORRECT, **draw(PRODUCER))
    header = header._replace(**dict(draw(CHANGES)))
    if draw(st.integers(0, 9)) == 0:
        data[draw(st.integers(HEADER_SIZE, SIZE - 1))] ^= 0x41
    return _with_header(data, header)


def batch_with(**fields: int) -> tuple[bytes, Header]:
    """A batch with these fields and the right CRC, and its header."""
    data = bytearray(batch(3))
    return _with_header(data, Header(*HEADER.unpack_from(data))._replace(crc=CORRECT, **fields))


def _with_header(data: bytearray, header: Header) -> tuple[bytes, Header]:
    HEADER.pack_into(data, 0, *header._replace(crc=0))
    if header.crc == CORRECT:
        header = header._replace(crc=crc_of(data, header))
    HEADER.pack_into(data, 0, *header)
    return bytes(data), header


def crc_of(data: bytes | bytearray, header: Header) -> int:
    """The right CRC of a batch of the header's length."""
    return crc32c(bytes(data[21 : max(header.length + 12, 21)]))
