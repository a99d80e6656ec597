"""Hypothesis strategies for frames: requests of every key and version that could be real, and what noise makes of them.

`requests` fills the fields that a version carries with likely and extreme values; `frames` encodes one and, most of
the time, damages it: bytes turned over, lengths replaced, pieces cut out or put in, frames that end early or late.
"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from integration_tests.differential.versions import OUR_OWN, STOCK
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import DecodeError, EncodeError
from isthmus.protocol.messages import APIS
from isthmus.protocol.records import build_batch
from isthmus.protocol.schema import Field, Struct

from .sockets import frame_of

VERSIONS = [
    (key, version) for key, (low, high) in sorted({**STOCK, **OUR_OWN}.items()) for version in range(low, high + 1)
]
TOPIC = "fuzzed"
TOPIC_ID = bytes(range(100, 116))  # stands for the id of that topic, which the test puts in its place
NAMES = (TOPIC, "fuzzed-too", "", "a/b", ".", "é" * 300, "__consumer_offsets", "__cluster_metadata")
CONFIGS = ("retention.ms", "cleanup.policy", "flush.messages", "durability", "mirror.link", "no.such.option")
TEXTS = (*NAMES, *CONFIGS, "range", "consumer", "1", "-1", "roundrobin", "x" * 33_000)
BYTES = (b"", b"\0\0", b"\xff" * 40, bytes(5_000))
SMALL = (0, 0, 1, 1, -1, 2, 3, 4)
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
SIZES = (-1, -2, 0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, -0x80000000)
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80" * 6, b"\x80\x80\x80\x80\x08")
MANY_PARTITIONS = 64  # a topic of so many is not garbage but work, which any client may ask for
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21


def _integers(kind: str) -> st.SearchStrategy[int]:
    bits = BITS[kind]
    low, high = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    likely = [n for n in SMALL if n >= low]
    return st.sampled_from([*likely, low, high]) | st.integers(low, high)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch under a right CRC; whatever else its header says is anybody's guess."""
    codec = draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]))
    count = draw(st.integers(1, 4))
    batch = bytearray(build_batch([(n, b"k", b"v" * 50, (("h", None),)) for n in range(count)], codec))
    if draw(st.booleans()):
        fields = list(_BATCH_HEADER.unpack_from(batch))
        at = draw(st.sampled_from([5, 6, 7, 8, 9, 10, 11, 12]))  # attributes to the number of records
        kind = {5: "int16", 6: "int32", 10: "int16", 11: "int32", 12: "int32"}.get(at, "int64")
        fields[at] = draw(_integers(kind))
        _BATCH_HEADER.pack_into(batch, 0, *fields)
    if draw(st.integers(0, 3)) == 0:
        batch[draw(st.integers(_BATCH_HEADER.size, len(batch) - 1))] ^= 1 << draw(st.integers(0, 7))
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[_CRC_FROM:])))
    return bytes(batch)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values: st.SearchStrategy[Any]
    match field.kind:
        case "bool":
            values = st.booleans()
        case "float64":
            values = st.floats()
        case "string":
            values = st.sampled_from(TEXTS)
            if field.name in ("name", "topic"):
                values = st.just(TOPIC) | values
        case "bytes":
            values = st.sampled_from(BYTES)
        case "records":
            values = st.lists(batches(), min_size=1, max_size=2).map(b"".join) | st.sampled_from(BYTES)
        case "uuid":
            values = st.sampled_from([bytes(16), b"\xff" * 16, TOPIC_ID, TOPIC_ID])
        case "array":
            element = structs(field.struct, version) if field.struct else _values(field.of, version)  # type: ignore[arg-type]
            values = st.lists(element, max_size=3)
        case "struct":
            values = structs(field.struct, version)  # type: ignore[arg-type]
        case kind:
            values = _integers(kind)
    return values | st.none() if field.nullable.has(version) else values


def structs(struct: type[Struct], version: int) -> st.SearchStrategy[Struct]:
    carried = {f.name: _values(f, version) for f in struct.FIELDS if f.versions.has(version)}
    if struct.__module__.endswith("create_topics") and "num_partitions" in carried:
        carried["num_partitions"] = st.sampled_from([1, 2, -1, 0, -2, 2**31 - 1])
    elif struct.__module__.endswith("create_partitions") and "count" in carried:
        carried["count"] = st.sampled_from([1, 2, 3, 0, -1, 2**31 - 1])
    elif "acks" in carried:
        carried["acks"] = st.sampled_from([-1, 1, 0, -1, 1, 2, -32768])
    return st.builds(struct, **carried)


_REQUESTS: dict[tuple[int, int], st.SearchStrategy[Struct]] = {}


def requests(key: int, version: int) -> st.SearchStrategy[Struct]:
    if (key, version) not in _REQUESTS:
        _REQUESTS[key, version] = structs(APIS[key].request.struct, version)
    return _REQUESTS[key, version]


@st.composite
def frames(draw: st.DrawFn, key: int, version: int) -> bytes:
    """A frame as it goes over the wire, its length first; the length is mostly right."""
    try:
        whole = frame_of(draw(requests(key, version)), version)
    except EncodeError:
        whole = frame_of(APIS[key].request.struct(), version)
    frame = bytearray(whole[4:])
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 5]))):
        _damage(draw, frame)
    claimed = len(frame) + draw(st.sampled_from([0, 0, 0, 0, 0, 0, -3, 3, 50_000_000]))
    if is_much_work(frame):
        frame, claimed = bytearray(whole[4:14]), 10
    return struct.pack(">i", claimed) + bytes(frame)


def _damage(draw: st.DrawFn, frame: bytearray) -> None:
    if not frame:
        return
    at = draw(st.integers(0, len(frame) - 1))
    match draw(st.sampled_from(["bit", "byte", "size", "varint", "cut", "repeat", "end"])):
        case "bit":
            frame[at] ^= 1 << draw(st.integers(0, 7))
        case "byte":
            frame[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        case "size":
            packed = struct.pack(">i", draw(st.sampled_from(SIZES)))[-draw(st.sampled_from([2, 4])) :]
            frame[at : at + len(packed)] = packed
        case "varint":
            frame[at:at] = draw(st.sampled_from(VARINTS))
        case "cut":
            del frame[at : at + draw(st.integers(1, 20))]
        case "repeat":
            frame[at:at] = frame[at : at + 40] * draw(st.sampled_from([1, 2, 50]))
        case "end":
            del frame[at:]


def is_much_work(frame: bytes | bytearray) -> bool:
    """Whether damage made a request for many partitions of it."""
    if len(frame) < 10:
        return False
    key, version = struct.unpack_from(">hh", frame)
    if key not in (19, 37) or (key, version) not in VERSIONS:
        return False
    client_id = struct.unpack_from(">h", frame, 8)[0]
    body = 10 + max(client_id, 0) + (APIS[key].request_header_version(version) == 2)
    try:
        topics = APIS[key].decode_request(bytes(frame), body, version).topics or []
    except DecodeError:
        return False
    return any((getattr(each, "num_partitions", 0) > MANY_PARTITIONS and each.num_partitions < 2**31 - 1)
               or (getattr(each, "count", 0) > MANY_PARTITIONS and each.count < 2**31 - 1)
               for each in topics)  # fmt: skip
