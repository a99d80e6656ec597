"""A client of librdkafka by its C functions, of the library that confluent-kafka carries: what C, Go and Rust call.

A call is for some hundred records, and Python sees none of them. `confluent.py` has Python's calls.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import files
from types import TracebackType
from typing import Any, Self

PRODUCER, CONSUMER = 0, 1  # rd_kafka_type_t
NEITHER_COPIED_NOR_FREED = 0  # of RD_KAFKA_MSG_F_COPY and _FREE
BEGINNING = -2  # RD_KAFKA_OFFSET_BEGINNING
WAIT_MS = 30_000
SAID_BYTES = 512


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = [
        ("err", ctypes.c_int), ("rkt", ctypes.c_void_p), ("partition", ctypes.c_int32), ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t), ("key", ctypes.c_void_p), ("key_len", ctypes.c_size_t), ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]  # fmt: skip


class _Partition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = [
        ("topic", ctypes.c_char_p), ("partition", ctypes.c_int), ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p), ("metadata_size", ctypes.c_size_t), ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int), ("private", ctypes.c_void_p),
    ]  # fmt: skip


class _Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = [("count", ctypes.c_int), ("size", ctypes.c_int), ("each", ctypes.POINTER(_Partition))]


_HANDLE, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_OFFSET = ctypes.POINTER(ctypes.c_int64)
_REPORT = ctypes.CFUNCTYPE(None, _HANDLE, ctypes.POINTER(Message), _HANDLE)
_ERROR = ctypes.CFUNCTYPE(None, _HANDLE, _INT, _TEXT, _HANDLE)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # what each gives, then what it takes
    "conf_new": (_HANDLE,),
    "conf_set": (_INT, _HANDLE, _TEXT, _TEXT, _TEXT, ctypes.c_size_t),
    "conf_set_dr_msg_cb": (None, _HANDLE, _REPORT),
    "conf_set_error_cb": (None, _HANDLE, _ERROR),
    "new": (_HANDLE, _INT, _HANDLE, _TEXT, ctypes.c_size_t),
    "destroy": (None, _HANDLE),
    "err2str": (_TEXT, _INT),
    "poll": (_INT, _HANDLE, _INT),
    "flush": (_INT, _HANDLE, _INT),
    "outq_len": (_INT, _HANDLE),
    "query_watermark_offsets": (_INT, _HANDLE, _TEXT, ctypes.c_int32, _OFFSET, _OFFSET, _INT),
    "topic_new": (_HANDLE, _HANDLE, _TEXT, _HANDLE),
    "topic_destroy": (None, _HANDLE),
    "produce_batch": (_INT, _HANDLE, ctypes.c_int32, _INT, ctypes.POINTER(Message), _INT),
    "queue_new": (_HANDLE, _HANDLE),
    "queue_destroy": (None, _HANDLE),
    "consume_start_queue": (_INT, _HANDLE, ctypes.c_int32, ctypes.c_int64, _HANDLE),
    "consume_stop": (_INT, _HANDLE, ctypes.c_int32),
    "consume_callback_queue": (_INT, _HANDLE, _INT, _HANDLE, _HANDLE),
    "topic_partition_list_new": (ctypes.POINTER(_Partitions), _INT),
    "topic_partition_list_add": (_HANDLE, ctypes.POINTER(_Partitions), _TEXT, ctypes.c_int32),
    "topic_partition_list_destroy": (None, ctypes.POINTER(_Partitions)),
    "position": (_INT, _HANDLE, ctypes.POINTER(_Partitions)),
    "init_transactions": (_HANDLE, _HANDLE, _INT),
    "begin_transaction": (_HANDLE, _HANDLE),
    "commit_transaction": (_HANDLE, _HANDLE, _INT),
    "error_string": (_TEXT, _HANDLE),
    "error_destroy": (None, _HANDLE),
}


def _library() -> tuple[dict[str, Callable[..., Any]], int]:
    """The functions, and the address of one that looks at a record."""
    [path] = [each for each in files("confluent-kafka") or () if each.match("*.libs/librdkafka*")]
    library = ctypes.CDLL(os.fspath(path.locate()))
    functions: dict[str, Callable[..., Any]] = {}
    for name, (gives, *takes) in _FUNCTIONS.items():
        function = library[f"rd_kafka_{name}"]
        function.restype, function.argtypes = gives, takes
        functions[name] = function
    # It takes a record and where to put the kind of its timestamp, which may be null: as a callback for records does.
    look = ctypes.cast(library.rd_kafka_message_timestamp, ctypes.c_void_p).value
    assert look
    return functions, look


class Client:
    """A producer or a consumer, and a topic. `failed` tells, in words, what went wrong between calls."""

    def __init__(self, kind: int, address: str, topic: str, options: Mapping[str, object]) -> None:
        """kind: PRODUCER or CONSUMER. Raises RuntimeError that names an option which librdkafka does not take."""
        self._call, self._look = _library()
        self.failed: list[str] = []
        self._name = topic.encode()
        self._values: list[bytes] = []  # kept where `records` point to
        said = ctypes.create_string_buffer(SAID_BYTES)
        conf = self._call["conf_new"]()
        for name, value in {"bootstrap.servers": address, **options}.items():
            if self._call["conf_set"](conf, name.encode(), str(value).encode(), said, SAID_BYTES):
                raise RuntimeError(said.value.decode())
        self._callbacks = _REPORT(self._reported), _ERROR(self._error)  # librdkafka does not keep them
        if kind == PRODUCER:
            self._call["conf_set_dr_msg_cb"](conf, self._callbacks[0])
        self._call["conf_set_error_cb"](conf, self._callbacks[1])
        self._handle = self._call["new"](kind, conf, said, SAID_BYTES)
        if not self._handle:
            raise RuntimeError(said.value.decode())
        self._topic = self._call["topic_new"](self._handle, self._name, None)
        self.count(1)  # it knows the topic's leaders by then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._call["topic_destroy"](self._topic)
        self._call["destroy"](self._handle)

    def count(self, partitions: int) -> int:
        """Records from the beginning to the end of so many partitions."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        found = 0
        for partition in range(partitions):
            self._check(
                self._call["query_watermark_offsets"](
                    self._handle, self._name, partition, ctypes.byref(low), ctypes.byref(high), WAIT_MS
                )
            )
            found += high.value - low.value
        return found

    def waiting(self) -> int:
        """Records that are not acknowledged yet."""
        waiting: int = self._call["outq_len"](self._handle)
        return waiting

    def poll(self, wait_ms: int) -> None:
        self._call["poll"](self._handle, wait_ms)

    def flush(self) -> None:
        self._check(self._call["flush"](self._handle, WAIT_MS))

    def records(self, values: Sequence[bytes]) -> ctypes.Array[Message]:
        """What `produce` takes, again and again; the values are kept as long as this client."""
        self._values.extend(values)
        records = (Message * len(values))()
        for record, value in zip(records, values, strict=True):
            record.payload, record.len = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p), len(value)
        return records

    def produce(self, partition: int, records: ctypes.Array[Message]) -> None:
        """There must be room in the queue. Values are read where they lie, as by librdkafka's own performance tool: to
        copy each first is no work of a client that keeps them."""
        flags = NEITHER_COPIED_NOR_FREED
        taken = self._call["produce_batch"](self._topic, partition, flags, records, len(records))
        if taken != len(records):
            raise RuntimeError(f"{taken} of {len(records)} records were taken")

    def init_transactions(self) -> None:
        self._done("init_transactions", WAIT_MS)

    def begin_transaction(self) -> None:
        self._done("begin_transaction")

    def commit_transaction(self) -> None:
        """What was produced since `begin_transaction` is acknowledged and committed then."""
        self._done("commit_transaction", WAIT_MS)

    def _done(self, name: str, *wait_ms: int) -> None:
        """Raises RuntimeError that says why it was not."""
        if error := self._call[name](self._handle, *wait_ms):
            said: bytes = self._call["error_string"](error)
            self._call["error_destroy"](error)
            raise RuntimeError(f"{name}: {said.decode()}")

    def start(self, partitions: int) -> None:
        """Reads so many from the beginning."""
        self._queue = self._call["queue_new"](self._handle)
        self._read = self._call["topic_partition_list_new"](partitions)
        self._before = 0
        for partition in range(partitions):
            self._call["topic_partition_list_add"](self._read, self._name, partition)
            if self._call["consume_start_queue"](self._topic, partition, BEGINNING, self._queue):
                raise RuntimeError(f"partition {partition} can not be read")

    def consume(self, wait_s: float) -> int:
        """How many records came, by offsets that begin at 0. Each one's timestamp was looked at."""
        self._call["consume_callback_queue"](self._queue, int(wait_s * 1000), self._look, None)
        self.poll(0)
        # What the call gives counts librdkafka's own marks as well.
        self._check(self._call["position"](self._handle, self._read))
        read = sum(max(each.offset, 0) for each in self._read.contents.each[: self._read.contents.count])
        came, self._before = read - self._before, read
        return came

    def stop(self, partitions: int) -> None:
        for partition in range(partitions):
            self._call["consume_stop"](self._topic, partition)
        self._call["topic_partition_list_destroy"](self._read)
        self._call["queue_destroy"](self._queue)

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(self._said(code))

    def _said(self, code: int) -> str:
        said: bytes = self._call["err2str"](code)
        return said.decode()

    def _reported(self, handle: int, record: Any, opaque: int) -> None:
        self.failed.append(self._said(record.contents.err))

    def _error(self, handle: int, code: int, reason: bytes, opaque: int) -> None:
        self.failed.append(f"{self._said(code)}: {reason.decode()}")
