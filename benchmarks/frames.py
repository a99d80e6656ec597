"""Ready-made request frames for `load`, encoded by the project's own codec, and a look at their answers.

Topics are named, not identified: Produce 11 and Fetch 12 are the newest versions that do, so one frame fits any broker.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from isthmus.protocol import records
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import fetch, produce

from .load import ask

CLIENT_ID = "bench"
PRODUCE_VERSION, FETCH_VERSION = 11, 12
TIMEOUT_MS = 10_000
READY_S = 10.0
READ_BYTES = 4 << 20  # a fetch
LETTERS = bytes(ord("A") + each % 26 for each in range(256))
LOG_OVERHEAD = 12  # bytes of a batch before and with its length
BOUNDS = struct.Struct(">qi11xi30xi")  # of a batch: base offset, length, last offset delta, number of records


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    """acks=all, one batch."""
    return spread_frame(topic, [partition], batch)


def spread_frame(topic: str, partitions: Sequence[int], batch: bytes) -> bytes:
    """acks=all, one batch for each of several partitions."""
    data = [produce.PartitionProduceData(index=partition, records=batch) for partition in partitions]
    request = produce.Request(
        acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[produce.TopicProduceData(name=topic, partition_data=data)]
    )
    return _frame(produce, request, PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, max_bytes: int, offset: int = 0) -> bytes:
    """At once, without a fetch session."""
    wanted = [fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)]
    request = fetch.Request(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, session_id=0, session_epoch=-1,
        topics=[fetch.FetchTopic(topic=topic, partitions=wanted)],
    )  # fmt: skip
    return _frame(fetch, request, FETCH_VERSION)


def batch(values: Sequence[bytes], keys: int = 0, codec: str = "none") -> bytes:
    """One batch of values; keys: how many different keys they have, 0 for none."""
    now = int(time.time() * 1000)
    rows = [(now, b"k%d" % (i % keys) if keys else None, value, ()) for i, value in enumerate(values)]
    return bytes(records.build_batch(rows, codec))


def random_batch(count: int, value_bytes: int) -> bytes:
    return batch([os.urandom(value_bytes) for _ in range(count)])


def text_batch(count: int, value_bytes: int, codec: str = "none") -> bytes:
    """Random capital letters, as Java's ProducerPerformance writes them: a codec finds something to save."""
    letters = os.urandom(count * value_bytes).translate(LETTERS)
    values = [letters[at : at + value_bytes] for at in range(0, len(letters), value_bytes)]
    return batch(values, codec=codec)


def read_back(address: str, topic: str, partitions: int) -> tuple[float, int]:
    """Read all of a topic, partition after partition, by raw fetches: seconds, and records by the batches' headers."""
    records = 0
    host, _, port = address.rpartition(":")
    started = time.perf_counter()
    with socket.create_connection((host, int(port))) as line, line.makefile("rb", 1 << 20) as answers:
        for partition in range(partitions):
            offset, end = 0, 1
            while offset < end:
                line.sendall(fetch_frame(topic, partition, READ_BYTES, offset))
                answer = memoryview(answers.read(int.from_bytes(answers.read(4), "big")))
                at = decode_response_header(answer, fetch.API.response_header_version(FETCH_VERSION))[1]
                response: Any = fetch.API.decode_response(answer, at, FETCH_VERSION)
                ((found,),) = (each.partitions for each in response.responses)
                end = found.high_watermark
                counted, next_offset = _count(found.records)
                if found.error_code or (next_offset <= offset < end):
                    raise RuntimeError(f"{topic}-{partition}: error {found.error_code} at offset {offset} of {end}")
                records, offset = records + counted, max(offset, next_offset)
    return time.perf_counter() - started, records


def _count(batches: memoryview) -> tuple[int, int]:
    """Records of the whole batches, and the offset after them."""
    position = records = next_offset = 0
    while position + BOUNDS.size <= len(batches):
        base, length, last_delta, count = BOUNDS.unpack_from(batches, position)
        position += length + LOG_OVERHEAD
        if position > len(batches):
            break
        records, next_offset = records + count, base + last_delta + 1
    return records, next_offset


def checked_size(address: str, frames: Sequence[bytes]) -> int:
    """The size, with its size field, of a right answer to each of `frames`; RuntimeError when the broker answers an
    error for READY_S long (a Kafka broker names the leader of a new topic before that leader serves it)."""
    sizes = set()
    for frame in frames:
        deadline = time.monotonic() + READY_S
        while (size := _right_size(address, frame)) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{address} answers with an error: {ask(address, frame)!r}")
            time.sleep(0.05)
        sizes.add(size)
    if len(sizes) != 1:
        raise RuntimeError(f"{address} gives answers of {sorted(sizes)} bytes to requests that are alike")
    return sizes.pop()


def _right_size(address: str, frame: bytes) -> int | None:
    module, version = (produce, PRODUCE_VERSION) if frame[4:6] == b"\0\0" else (fetch, FETCH_VERSION)
    answer = ask(address, frame)
    at = decode_response_header(answer, module.API.response_header_version(version))[1]
    response: Any = module.API.decode_response(answer, at, version)
    for topic in response.responses:
        for each in topic.partition_responses if module is produce else topic.partitions:
            if each.error_code:
                return None
    return len(answer) + 4


def _frame(module: ModuleType, request: Any, version: int) -> bytes:
    header = RequestHeader(module.API.key, version, 0, CLIENT_ID)
    return b"".join(map(bytes, frame_request(header, module.API.encode_request(request, version))))
