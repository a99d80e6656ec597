# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The short way of a Fetch request (from version 12 on), where compiled: from its frame to the parts of its answer.

It takes consumers' requests of which all is plain: every partition is known and led here, the position of each offset
and the aborted transactions there are found without the disk, and there is enough to answer now. Until all that is
sure, nothing is changed that the long way (`apis/fetch.py`) would not change in the same way, so that the request can
still go there.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any, TypeAlias

import cython

from ...protocol.codegen_decode import REQUEST_ELEMENTS_MAX, STRING_BYTES_MAX
from ...protocol.errors import KafkaError
from ...protocol.primitives import ZERO_UUID
from ..replication._core import PartitionCore
from ..storage.disk._data_file import FileRange
from ..storage.log._ranges import LogRanges, NotCached
from ._context import Context
from ._route import AtOnce, Body
from ._wanted import Wanted
from .read_replica import foreign_rack

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.isthmus.protocol._batch_header import _int32, _int64
    from cython.cimports.isthmus.protocol._writing import _put_int32, _put_int64, _put_uvarint
    from cython.cimports.libc.string import memcpy
else:  # only compiled code calls them
    _int32: Any
    _int64: Any
    _put_int32: Any
    _put_int64: Any
    _put_uvarint: Any
    PyBytes_AS_STRING: Any
    PyBytes_FromStringAndSize: Any
    memcpy: Any

if TYPE_CHECKING:
    from .fetch_sessions import FetchSession, FetchSessions

    Place: TypeAlias = "tuple[str | bytes, int]"

COMPILED = cython.compiled

_TOPIC_IDS_SINCE: cython.int = 13
_REPLICA_STATE_SINCE: cython.int = 15
_LIMITS_BYTES: cython.Py_ssize_t = 21  # longest wait, least and most bytes, isolation level, session id and epoch
# Index, leader epoch, offset, epoch of the offset before, log start offset, most bytes, no tags.
_ASKED_BYTES: cython.Py_ssize_t = 33
# Size, correlation id, no tags, throttle time, error code, session id, number of topics, no tags.
_HEAD_BYTES: cython.Py_ssize_t = 25
# Index, error code, three offsets, number of aborted transactions, replica, length of the records, no tags.
_ROW_BYTES: cython.Py_ssize_t = 45
_ABORTED_BYTES: cython.Py_ssize_t = 17  # producer id, first offset, no tags
_TOPIC_BYTES: cython.Py_ssize_t = 24  # an id, or a name's length, its number of partitions, no tags
_ANSWER_BYTES_SAFE: cython.longlong = 2**30  # of records: with so many an answer's size fits in its four bytes
_NO_SESSION: cython.longlong = 0
_FINAL_EPOCH: cython.longlong = -1
_STRING_BYTES_MAX: cython.Py_ssize_t = STRING_BYTES_MAX
_ELEMENTS_MAX: cython.Py_ssize_t = REQUEST_ELEMENTS_MAX


@cython.final
@cython.cclass
class Row:
    """What the answer says of one partition.

    is_full: the limit left no space for more. aborted: (first offset, producer id) of the aborted transactions; None
    for no list.
    """

    wanted: Wanted
    partition: PartitionCore
    place: Place
    ranges: list[FileRange]
    size: cython.longlong
    high_watermark: cython.longlong
    stable_offset: cython.longlong
    log_start_offset: cython.longlong
    cut: cython.Py_ssize_t
    aborted: list | None
    is_full: cython.bint


@cython.final
@cython.cclass
class FetchBody(Body):
    """A Fetch request that is being read, and answered."""

    version: cython.int
    by_id: cython.bint
    is_committed: cython.bint
    max_wait_ms: cython.longlong
    min_bytes: cython.longlong
    most_bytes: cython.longlong
    session_id: cython.longlong
    session_epoch: cython.longlong
    rack: cython.Py_ssize_t
    sessions: FetchSessions
    session: FetchSession | None
    wanted: dict[Place, Wanted]
    rows: list[Row]
    idle: list[Wanted]

    # --- what is asked ------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def read(self, services) -> cython.bint:
        """Whether all of it may go the short way; then `rows` has what the answer says."""
        topics: cython.Py_ssize_t
        if self.version < _REPLICA_STATE_SINCE:  # from then on a follower's id is in a tag
            if self.end - self.p < 4 or _int32(self.b, self.p) != -1:
                return False
            self.p += 4
        if self.end - self.p < _LIMITS_BYTES:
            return False
        self.max_wait_ms = _int32(self.b, self.p)
        self.min_bytes = _int32(self.b, self.p + 4)
        self.most_bytes = min(_int32(self.b, self.p + 8), services.config["fetch.max.bytes"])
        if self.b[self.p + 12] > 1:
            return False
        self.is_committed = self.b[self.p + 12] == 1
        self.session_id = _int32(self.b, self.p + 13)
        self.session_epoch = _int32(self.b, self.p + 17)
        self.p += _LIMITS_BYTES
        topics = self.p
        if not self._is_whole() or not self._is_from_here(services.config):
            return False
        if not self._find_session(services.fetch_sessions):
            return False
        self.p = topics
        return self._find_wanted(services) and self._look(services.replicas.partitions)

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_whole(self) -> cython.bint:
        """Whether the decoder would take the whole request, and it has no forgotten partitions and no tags."""
        count: cython.Py_ssize_t = self.uvarint() - 1
        elements: cython.Py_ssize_t = count
        size: cython.Py_ssize_t
        _i: cython.Py_ssize_t
        _j: cython.Py_ssize_t
        if count < 0:
            return False
        for _i in range(count):
            if self.by_id:
                if self.end - self.p < 16:
                    return False
                self.p += 16
            elif not self._skip_name():
                return False
            size = self.uvarint() - 1
            if size < 0 or size > (self.end - self.p) // _ASKED_BYTES:
                return False
            elements += size
            for _j in range(size):
                self.p += _ASKED_BYTES
                if self.b[self.p - 1]:
                    return False
            if self.p == self.end or self.b[self.p]:
                return False
            self.p += 1
        if elements > _ELEMENTS_MAX or self.uvarint() != 1:  # partitions are forgotten
            return False
        self.rack = self.p
        return self._skip_name() and self.end - self.p == 1 and not self.b[self.p]

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_from_here(self, config) -> cython.bint:
        """Whether the client may read from this broker, as far as racks go."""
        self.p = self.rack
        size: cython.Py_ssize_t = self.uvarint() - 1
        if not size:
            return True
        rack: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + self.p, size)
        return not foreign_rack(rack.decode(), config)

    @cython.cfunc
    @cython.exceptval(-1)
    def _skip_name(self) -> cython.bint:
        """Whether a name in ASCII comes next, as all names of topics are; the decoder may refuse any other."""
        size: cython.Py_ssize_t = self.uvarint() - 1
        if size < 0 or size > _STRING_BYTES_MAX or size > self.end - self.p:
            return False
        self.p += size
        while size:
            if self.b[self.p - size] > 127:
                return False
            size -= 1
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _find_session(self, sessions) -> cython.bint:
        if self.session_epoch == _FINAL_EPOCH and self.session_id == _NO_SESSION:
            return True
        if self.session_epoch <= 0 or sessions.partitions_count > sessions.max_partitions:
            return False
        try:
            self.session = sessions.resume(self.session_id, self.session_epoch, self.by_id)
        except KafkaError:
            return False
        self.sessions = sessions
        self.wanted = self.session.partitions
        return len(self.wanted) > 0 and len(self.wanted) == self.session.size

    @cython.cfunc
    @cython.exceptval(-1)
    def _find_wanted(self, services) -> cython.bint:
        """Read what is asked of each partition; False where one is new to its session, or, without one, named twice."""
        name: str | None
        key: object
        topic_id: bytes = ZERO_UUID
        size: cython.Py_ssize_t
        count: cython.Py_ssize_t = self.uvarint() - 1
        _i: cython.Py_ssize_t
        _j: cython.Py_ssize_t
        for _i in range(count):
            if self.by_id:
                key = topic_id = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + self.p, 16)
                self.p += 16
                names: dict = services.image.names_by_id
                name = names.get(topic_id)
                if name is None:
                    return False
            else:
                size = self.uvarint() - 1
                key = name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.b) + self.p, size).decode()
                self.p += size
            size = self.uvarint() - 1
            for _j in range(size):
                if not self._take(key, name, topic_id):
                    return False
                self.p += _ASKED_BYTES
            self.p += 1
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _take(self, key, name: str, topic_id: bytes) -> cython.bint:
        wanted: Wanted
        b: cython.p_const_uchar = self.b + self.p
        index: cython.longlong = _int32(b, 0)
        place = (key, index)
        found = self.wanted.get(place)
        if self.session is not None:
            if found is None:
                return False
            wanted = found
        elif found is not None:
            return False
        else:
            self.wanted[place] = wanted = Wanted(name, topic_id, index)
        wanted.ask(_int64(b, 8), _int32(b, 4), _int32(b, 16), _int32(b, 28))
        return True

    # --- what there is ------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def _look(self, partitions) -> cython.bint:
        """Find what to answer; False where it is not enough yet, or where a partition has to go the long way."""
        wanted: Wanted
        row: Row | None
        left: cython.longlong = self.most_bytes
        size: cython.longlong = 0
        for place, wanted in self.wanted.items():
            wanted.size = 0
            if wanted.has_no_news():
                self.idle.append(wanted)
                left = max(left, 0)
                continue
            row = self._look_at(wanted, partitions, left, size == 0)
            if row is None:
                return False
            row.place = place
            self.rows.append(row)
            wanted.size = row.size
            size += row.size
            left = max(left - row.size, 0)
        if size > _ANSWER_BYTES_SAFE:
            return False
        return size >= min(self.min_bytes, self.most_bytes) or self.max_wait_ms <= 0 or not (self.rows or self.idle)

    @cython.cfunc
    def _look_at(self, wanted: Wanted, partitions, left: cython.longlong, min_one: cython.bint) -> Row | None:
        row: Row = Row.__new__(Row)
        ranges: LogRanges
        part: FileRange
        limit: cython.longlong
        upper: cython.longlong
        partition: PartitionCore
        of_topic = partitions.get(wanted.topic)
        if of_topic is None:
            return None
        found = of_topic.get(wanted.index)
        if found is None or (wanted.topic_id is not ZERO_UUID and found.topic_id != wanted.topic_id):
            return None
        partition = found.core
        if (
            not partition.is_served()
            or (wanted.current_leader_epoch >= 0 and wanted.current_leader_epoch != partition.leader_epoch)
            or wanted.last_fetched_epoch >= 0
        ):
            return None
        ranges = partition.ranges
        wanted.partition = found
        row.wanted = wanted
        row.partition = partition
        row.high_watermark = partition.high_watermark
        row.stable_offset = partition.stable_offset()
        row.log_start_offset = partition.tail.log_start_offset
        row.size = 0
        row.aborted = [] if self.is_committed else None
        if wanted.fetch_offset == row.high_watermark:
            return row
        upper = row.stable_offset if self.is_committed else row.high_watermark
        limit = min(wanted.max_bytes, left)
        if limit < 0:
            return None
        try:
            row.ranges = ranges.ranges_up_to(wanted.fetch_offset, limit, upper, min_one, False)
        except (KafkaError, NotCached):
            return None
        if self.is_committed and row.ranges:
            upper = ranges.end_of(row.ranges, wanted.fetch_offset, upper)
            row.aborted = ranges.aborted(wanted.fetch_offset, upper, False)
            if row.aborted is None:
                return None
        for part in row.ranges:
            row.size += part.size_bytes
        row.is_full = row.size == limit
        if self.is_committed and not row.size and limit and wanted.fetch_offset < upper:
            row.aborted = None  # its first batch did not fit, of which Kafka tells no more
        return row

    # --- the answer ---------------------------------------------------------------------------------------------------

    @cython.cfunc
    def answer(self, correlation: cython.longlong):
        """Its bytes, or a list of bytes and ranges. From here on the request counts in sessions and metrics."""
        row: Row
        wanted: Wanted
        told: list = self.rows
        session_id: cython.longlong = 0
        for row in self.rows:
            if row.is_full and row.size:
                row.size -= row.partition.ranges.end_with_batch(row.wanted.fetch_offset, row.ranges)
            row.partition.traffic.fetches += 1
            row.partition.traffic.bytes_out += row.size
        for wanted in self.idle:
            cython.cast(PartitionCore, wanted.idle).traffic.fetches += 1
        if self.session is not None:
            self.sessions.used(self.session, get_running_loop().time())
            session_id = self.session_id
            told = []
            for row in self.rows:
                if row.wanted.told(row.size > 0, 0, row.high_watermark, row.log_start_offset):
                    told.append(row)
                    if row.size:
                        self.session.moved(row.place)
        return self._encoded(told, correlation, session_id)

    @cython.cfunc
    def _encoded(self, rows: list, correlation: cython.longlong, session_id: cython.longlong):
        row: Row
        first: Row
        size: cython.Py_ssize_t = _HEAD_BYTES
        count: cython.Py_ssize_t = len(rows)
        topics: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        for row in rows:
            size += _ROW_BYTES + _TOPIC_BYTES
            if row.aborted:
                size += _ABORTED_BYTES * len(row.aborted)
            if not self.by_id:
                size += 4 * len(row.wanted.topic or "")
        made: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
        for i in range(count):
            if i == 0 or not _is_of_one_topic(rows[i - 1], rows[i]):
                topics += 1
        _put_int32(out + 4, correlation)
        out[8] = 0
        _put_int32(out + 9, 0)  # throttle time
        out[13] = out[14] = 0  # error code
        _put_int32(out + 15, session_id)
        n = _put_uvarint(out, 19, topics + 1)
        i = 0
        while i < count:
            first = rows[i]
            j = i + 1
            while j < count and _is_of_one_topic(first, rows[j]):
                j += 1
            n = self._put_topic(out, n, first.wanted, j - i)
            while i < j:
                row = rows[i]
                n = _put_row(out, n, row)
                i += 1
            out[n] = 0
            n += 1
        out[n] = 0
        return _cut(made, n + 1, rows)

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_topic(
        self, out: cython.p_uchar, n: cython.Py_ssize_t, wanted: Wanted, count: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        told: bytes = wanted.topic_id if self.by_id else (wanted.topic or "").encode()
        if not self.by_id:
            n = _put_uvarint(out, n, len(told) + 1)
        memcpy(out + n, PyBytes_AS_STRING(told), len(told))
        return _put_uvarint(out, n + len(told), count + 1)


@cython.cfunc
@cython.exceptval(-1)
def _is_of_one_topic(one: Row, other: Row) -> cython.bint:
    return one.wanted.topic == other.wanted.topic and one.wanted.topic_id == other.wanted.topic_id


@cython.cfunc
@cython.exceptval(-1)
def _put_row(out: cython.p_uchar, n: cython.Py_ssize_t, row: Row) -> cython.Py_ssize_t:
    first_offset: cython.longlong
    producer_id: cython.longlong
    _put_int32(out + n, row.wanted.index)
    out[n + 4] = out[n + 5] = 0
    _put_int64(out + n + 6, row.high_watermark)
    _put_int64(out + n + 14, row.stable_offset)
    _put_int64(out + n + 22, row.log_start_offset)
    n += 30
    if row.aborted is None:
        out[n] = 0
        n += 1
    else:
        n = _put_uvarint(out, n, len(row.aborted) + 1)
        for first_offset, producer_id in row.aborted:
            _put_int64(out + n, producer_id)
            _put_int64(out + n + 8, first_offset)
            out[n + 16] = 0
            n += _ABORTED_BYTES
    _put_int32(out + n, -1)  # another replica to read from
    n = _put_uvarint(out, n + 4, row.size + 1)
    row.cut = n
    out[n] = 0
    return n + 1


@cython.cfunc
def _cut(made: bytes, size: cython.Py_ssize_t, rows: list):
    """The answer: its bytes, cut where the ranges with records go."""
    row: Row
    out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    total: cython.longlong = size - 4
    begin: cython.Py_ssize_t = 0
    parts: list = []
    for row in rows:
        total += row.size
    _put_int32(out, total)
    for row in rows:
        if row.size:
            parts.append(PyBytes_FromStringAndSize(cython.cast(cython.p_char, out) + begin, row.cut - begin))
            parts += row.ranges
            begin = row.cut
    last: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, out) + begin, size - begin)
    if not parts:
        return last
    parts.append(last)
    return parts


@cython.final
@cython.cclass
class FetchAtOnce(AtOnce):
    """The short way of one version."""

    version: cython.int

    def __init__(self, version: cython.int) -> None:
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
        asked: FetchBody = FetchBody.__new__(FetchBody)
        asked.b = b
        asked.p = body
        asked.end = end
        asked.version = self.version
        asked.by_id = self.version >= _TOPIC_IDS_SINCE
        asked.wanted = {}
        asked.rows = []
        asked.idle = []
        return asked.answer(correlation) if asked.read(context.services) else None
