# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The short way of a Produce request (versions 9 to 13), where compiled: from its frame to the bytes of its answer.

It takes requests of a plain form whose partitions have no obstacle (`replication/_core.py`) and whose batches are
plain (`storage/log/_tail.py`): those of a transaction, too, where it is open in the partition's log. The whole request
is checked before anything is appended. Any other request goes the long way, by its decoder, `apis/produce.py` and its
encoder. Where an append is refused, or has to wait for its high watermark, the answer is made as on the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import cython

from ...protocol.batch_layout import ATTRIBUTES_LOW_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, TRANSACTIONAL
from ...protocol.codegen_decode import STRING_BYTES_MAX
from ...protocol.errors import KafkaError
from ..cluster.topic_names import INTERNAL_TOPICS
from ..replication._core import PartitionCore
from ._context import Context
from ._route import AtOnce, Body

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32, _int64
    from cython.cimports.isthmus.protocol._writing import _put_int32, _put_int64, _put_uvarint, _uvarint_size
    from cython.cimports.libc.string import memcpy
else:  # only compiled code calls them
    _int16: Any
    _int32: Any
    _int64: Any
    _put_int32: Any
    _put_int64: Any
    _put_uvarint: Any
    _uvarint_size: Any
    PyBytes_AS_STRING: Any
    PyBytes_FromStringAndSize: Any
    memcpy: Any

if TYPE_CHECKING:
    from ...compiled import Readonly
    from ..replication.partition import Partition

    Name: TypeAlias = "bytes"
    Appended: TypeAlias = "tuple[Partition, int, int, KafkaError | None]"
    OtherAnswer: TypeAlias = "Callable[[list[tuple[str, bytes, list[Appended]]], int, int, Any], Any]"

COMPILED = cython.compiled

_TOPIC_IDS_SINCE: cython.int = 13
_HEAD_BYTES: cython.Py_ssize_t = 10  # size, correlation id, no tagged fields, number of topics in one byte
# Index, error code, base offset, LogAppendTime, log start offset, no record errors, message or tags.
_ROW_BYTES: cython.Py_ssize_t = 33
_COMPARED_MAX: cython.Py_ssize_t = 16  # partitions, each of which is compared with all before it
_TAIL_BYTES: cython.Py_ssize_t = 5  # throttle time, no tagged fields

_STRING_BYTES_MAX: cython.Py_ssize_t = STRING_BYTES_MAX

_NO_ID = bytes(16)
_INTERNAL = frozenset(INTERNAL_TOPICS)


@cython.final
@cython.cclass
class Part:
    """What a request has for one partition. Its batch begins at b."""

    partition: PartitionCore
    b: cython.p_const_uchar
    size: cython.Py_ssize_t
    records: cython.longlong
    index: Readonly[cython.longlong]
    base_offset: Readonly[cython.longlong]
    error: Readonly[KafkaError | None]


@cython.final
@cython.cclass
class Asked:
    """What a request has for one topic. topic: as the request has it, a name with its length, or an id."""

    topic: Readonly[Name]
    name: Readonly[str]
    parts: Readonly[list[Part]]


@cython.final
@cython.cclass
class ProduceFrame(Body):
    """A Produce request that is being read."""

    in_transaction: cython.bint
    producer_id: cython.longlong  # of the transaction's batches, -1 before the first of them
    producer_epoch: cython.longlong
    acks: cython.int
    timeout_ms: cython.longlong
    topics: list[Asked]
    answer_bytes: cython.Py_ssize_t

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, version: cython.int, services, wall_ms: cython.longlong) -> cython.bint:
        """Whether all of it may go the short way."""
        count: cython.Py_ssize_t
        _i: cython.Py_ssize_t
        topic: Asked | None
        names: set
        if not self.read_transaction() or self.end - self.p < 7:
            return False
        self.acks = _int16(self.b, self.p)
        self.timeout_ms = _int32(self.b, self.p + 2)
        if self.acks != -1 and self.acks != 1:
            return False
        self.p += 6
        count = self.uvarint() - 1
        if count < 1 or count > 126:
            return False
        for _i in range(count):
            topic = self.read_topic(version, services, wall_ms)
            if topic is None:
                return False
            self.topics.append(topic)
        if self.end - self.p != 1 or self.b[self.p]:
            return False
        if count > 1:
            names = {each.name for each in self.topics}
            if len(names) < count:
                return False
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def read_transaction(self) -> cython.bint:
        """Read the transactional id, of which only its being there counts; whether the decoder would take it."""
        size: cython.Py_ssize_t = self.uvarint() - 1
        self.producer_id = -1
        self.in_transaction = size >= 0
        if size < -1 or size > _STRING_BYTES_MAX or size > self.end - self.p:
            return False
        if size > 0:
            try:
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + self.p, size).decode()
            except UnicodeDecodeError:
                return False
            self.p += size
        return True

    @cython.cfunc
    def read_topic(self, version: cython.int, services, wall_ms: cython.longlong) -> Asked | None:
        topic: Asked = Asked.__new__(Asked)
        part: Part | None
        partitions: dict
        start: cython.Py_ssize_t = self.p
        count: cython.Py_ssize_t
        _i: cython.Py_ssize_t
        if version >= _TOPIC_IDS_SINCE:
            self.p += 16
            if self.p > self.end:
                return None
            topic.topic = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + start, self.p - start)
            names: dict = services.image.names_by_id
            name = names.get(topic.topic)
            if name is None:
                return None
            topic.name = name
        else:
            count = self.uvarint() - 1
            if count < 1 or count > self.end - self.p:
                return None
            self.p += count
            topic.topic = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + start, self.p - start)
            try:
                topic.name = topic.topic[-count:].decode()
            except UnicodeDecodeError:
                return None
        partitions = services.replicas.partitions.get(topic.name)
        count = self.uvarint() - 1
        if partitions is None or topic.name in _INTERNAL or count < 1 or count > self.end - self.p:
            return None
        topic.parts = []
        self.answer_bytes += len(topic.topic) + _uvarint_size(count + 1) + count * _ROW_BYTES + 1
        for _i in range(count):
            part = self.read_part(partitions, wall_ms)
            if part is None:
                return None
            topic.parts.append(part)
        if count > 1 and not _differ(topic.parts):
            return None
        if self.end - self.p < 1 or self.b[self.p]:
            return None
        self.p += 1
        return topic

    @cython.cfunc
    def read_part(self, partitions: dict, wall_ms: cython.longlong) -> Part | None:
        part: Part = Part.__new__(Part)
        if self.end - self.p < 5:
            return None
        part.index = _int32(self.b, self.p)
        self.p += 4
        part.size = self.uvarint() - 1
        if part.size < 0 or part.size >= self.end - self.p:
            return None
        found = partitions.get(part.index)
        if found is None:
            return None
        part.partition = found.core
        part.b = self.b + self.p
        part.records = part.partition.records_plain(part.b, part.size, self.acks, wall_ms)
        self.p += part.size
        if part.records < 0 or self.b[self.p]:
            return None
        if part.b[ATTRIBUTES_LOW_AT] & TRANSACTIONAL and not self.is_of_transaction(part.b):
            return None
        self.p += 1
        return part

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_of_transaction(self, b: cython.p_const_uchar) -> cython.bint:
        """Whether the request names a transaction, and a transactional batch is of the same producer as all others."""
        producer_id: cython.longlong = _int64(b, PRODUCER_ID_AT)
        epoch: cython.longlong = _int16(b, PRODUCER_EPOCH_AT)
        if not self.in_transaction or producer_id < 0:
            return False
        if self.producer_id < 0:
            self.producer_id = producer_id
            self.producer_epoch = epoch
        return producer_id == self.producer_id and epoch == self.producer_epoch

    @cython.cfunc
    @cython.exceptval(-1)
    def append(self, wall_ms: cython.longlong) -> cython.bint:
        """Append all batches; whether all are acknowledged now. Errors are in the parts' `error`."""
        is_done: cython.bint = True
        topic: Asked
        part: Part
        for topic in self.topics:
            for part in topic.parts:
                try:
                    part.base_offset = part.partition.append_plain(part.b, part.size, part.records, wall_ms)
                    is_done &= part.partition.is_acknowledged(part.base_offset + part.records, self.acks)
                except KafkaError as error:
                    part.base_offset, part.error = -1, error
                    is_done = False
        return is_done

    @cython.cfunc
    def outcomes(self, version: cython.int) -> list:
        """The result of each append, for an answer that has errors or has to wait."""
        topic: Asked
        part: Part
        made: list = []
        parts: list
        for topic in self.topics:
            parts = []
            for part in topic.parts:
                parts.append((part.partition.partition, part.base_offset, part.records, part.error))
            made.append((topic.name, topic.topic if version >= _TOPIC_IDS_SINCE else _NO_ID, parts))
        return made

    @cython.cfunc
    def answer(self, correlation: cython.longlong) -> bytes:
        topic: Asked
        part: Part
        size: cython.Py_ssize_t
        n: cython.Py_ssize_t = _HEAD_BYTES
        size = _HEAD_BYTES + self.answer_bytes + _TAIL_BYTES
        made: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
        told: bytes
        _put_int32(out, size - 4)
        _put_int32(out + 4, correlation)
        out[8] = 0
        out[9] = len(self.topics) + 1
        for topic in self.topics:
            told = topic.topic
            memcpy(out + n, PyBytes_AS_STRING(told), len(told))
            n += len(told)
            n = _put_uvarint(out, n, len(topic.parts) + 1)
            for part in topic.parts:
                _put_int32(out + n, part.index)
                out[n + 4] = out[n + 5] = 0
                _put_int64(out + n + 6, part.base_offset)
                _put_int64(out + n + 14, -1)
                _put_int64(out + n + 22, part.partition.tail.log_start_offset)
                out[n + 30] = 1
                out[n + 31] = out[n + 32] = 0
                n += _ROW_BYTES
            out[n] = 0
            n += 1
        _put_int32(out + n, 0)
        out[n + 4] = 0
        return made


@cython.final
@cython.cclass
class ProduceAtOnce(AtOnce):
    """The short way of one version.

    other_answer: makes the answer where an append was refused all the same, or has to wait. It is called with
    [(topic, its id if the request has it, [(partition, base offset, number of records, error or None)])], the
    request's acks, its timeout_ms and its context.
    """

    other_answer: OtherAnswer
    version: cython.int

    def __init__(self, other_answer: OtherAnswer, version: cython.int) -> None:
        self.other_answer = other_answer
        self.version = version

    @cython.cfunc
    def answer(
        self,
        b: cython.p_const_uchar,
        body: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        correlation: cython.longlong,
        context: Context,
    ):
        asked: ProduceFrame = ProduceFrame.__new__(ProduceFrame)
        wall_ms: cython.longlong
        asked.b = b
        asked.p = body
        asked.end = end
        asked.topics = []
        asked.answer_bytes = 0
        services = context.services
        wall_ms = services.runtime.wall_ms()
        if not asked.read(self.version, services, wall_ms):
            return None
        if asked.append(wall_ms):
            return asked.answer(correlation)
        return self.other_answer(asked.outcomes(self.version), asked.acks, asked.timeout_ms, context)


@cython.cfunc
def _differ(parts: list) -> cython.bint:
    """Whether no partition is there twice. Nearly every client sends them in ascending order."""
    part: Part
    other: Part
    indexes: set
    i: cython.Py_ssize_t
    j: cython.Py_ssize_t
    before: cython.longlong = -1
    for part in parts:
        if part.index <= before:
            break
        before = part.index
    else:
        return True
    if len(parts) > _COMPARED_MAX:
        indexes = set()
        for part in parts:
            indexes.add(part.index)
        return len(indexes) == len(parts)
    for i in range(1, len(parts)):
        part = parts[i]
        for j in range(i):
            other = parts[j]
            if other.index == part.index:
                return False
    return True
