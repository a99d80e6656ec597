# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# mypy: ignore-errors
"""What an append through a partition's leader looks at and changes, as storage/log/_tail.py has it of a log.

`Partition` and `Traffic` are made of these classes and of all that is done less often.
"""

import cython

from ...protocol.errors import KafkaError
from ..storage.disk.errors import fresh_copy
from ..storage.log._tail import LogTail


@cython.cclass
class Counts:
    """See Traffic."""

    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "bytes_refused",
        "failed_appends",
        "failed_fetches",
        "fetches",
        "messages_in",
    )


@cython.cclass
class Leading:
    """See Partition."""

    __slots__ = (
        "_data_waiters",
        "_end_waiters",
        "_holds_back",
        "failure",
        "high_watermark",
        "isr",
        "leader_epoch",
        "least_in_sync",
        "line",
        "log",
        "mirror_link",
        "ranges",
        "refusal",
        "tail",
        "traffic",
    )

    @cython.cfunc
    @cython.exceptval(-1)
    def records_plain(
        self,
        b: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        acks: cython.int,
        wall_ms: cython.longlong,
    ) -> cython.longlong:
        """How many records this one batch of a client has, if the short way may take it; else -2. Changes nothing."""
        tail: LogTail = self.tail
        if (
            self.failure is not None
            or self.refusal
            or self.mirror_link
            or self.line is not None
            or self._holds_back
            or (acks == -1 and len(self.isr) < self.least_in_sync)
            or tail is None
        ):
            return -2
        return tail.records_plain(b, size, wall_ms)

    @cython.cfunc
    @cython.exceptval(-1)
    def append_plain(
        self,
        b: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        records: cython.longlong,
        wall_ms: cython.longlong,
    ) -> cython.longlong:
        """Append a batch of so many records, as `records_plain` has counted; its base offset. Raises KafkaError.

        The high watermark follows the log's end at once, or `records_plain` has said no.
        """
        tail: LogTail = self.tail
        traffic: Counts = self.traffic
        base: cython.longlong
        if self.failure is not None:  # since `records_plain`, by whoever an append to another partition has woken
            raise fresh_copy(self.failure)
        traffic.appends += 1
        try:
            base = tail.append_plain(b, size, self.leader_epoch, wall_ms)
        except KafkaError as error:
            self._append_failed(error, size)
            raise
        traffic.bytes_in += size
        traffic.messages_in += records
        self.high_watermark = tail.log_end_offset
        if self._end_waiters:
            self._wake_end_waiters()
        if self._data_waiters:
            self.wake_data_waiters()
        return base
