"""Records as columns, on their way from the user into batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..protocol.records import BatchBuilder

RECORD_OVERHEAD_BYTES = 24  # upper limit for a record without key, value and headers

Headers = Sequence[tuple[str, bytes | None]]
_PLAIN = frozenset({bytes, type(None)})


class Columns(NamedTuple):
    """Sequences of one length. headers: None where no record has any."""

    length: int
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None
    has_keys: bool

    @classmethod
    def of(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        timestamps_ms: Sequence[int] | int | None,
        headers: Sequence[Headers] | None,
        now_ms: Callable[[], int],
    ) -> Columns:
        """As of `Producer.send_many`. Raises what its docstring says: whatever cannot be in a batch is found here,
        before the first record is put into one."""
        count = len(values)
        if timestamps_ms is None:
            timestamps_ms = now_ms()
        stamps = [timestamps_ms] * count if isinstance(timestamps_ms, int) else timestamps_ms
        columns = {"keys": keys, "timestamps_ms": stamps, "headers": headers}
        for name, column in columns.items():
            if column is not None and len(column) != count:
                raise ValueError(f"{name} has {len(column)} elements, and values has {count}")
        array("q", stamps)  # raises
        for pairs in headers or ():
            for name, value in pairs:
                name.encode("utf-8", "surrogateescape")
                _bytes(value)
        return cls(
            count,
            stamps,
            [None] * count if keys is None else _all_bytes(keys),
            _all_bytes(values),
            headers if headers is not None and any(headers) else None,
            keys is not None,
        )

    def into(self, builder: BatchBuilder, start: int, rows: Sequence[int] | None) -> int:
        """As `BatchBuilder.extend_columns`."""
        return builder.extend_columns(self.timestamps, self.keys, self.values, start, self.headers, rows)

    @property
    def size_bytes(self) -> int:
        """At most, in batches."""
        sizes = sum(len(each) for column in (self.keys, self.values) for each in column if each is not None)
        pairs = [pair for each in self.headers or () for pair in each]
        return (
            self.length * RECORD_OVERHEAD_BYTES
            + sizes
            + sum(len(name) + len(value or b"") + 4 for name, value in pairs)
        )

    def copied(self) -> Columns:
        """What the user does to the sequences afterwards does not matter."""
        headers = None if self.headers is None else [tuple(each) for each in self.headers]
        return self._replace(
            timestamps=list(self.timestamps), keys=list(self.keys), values=list(self.values), headers=headers
        )


def _all_bytes(column: Sequence[bytes | None]) -> Sequence[bytes | None]:
    return column if _PLAIN.issuperset(map(type, column)) else [_bytes(each) for each in column]


def _bytes(data: bytes | None) -> bytes | None:
    """Any buffer as bytes. An int or a str is refused."""
    return data if data is None else bytes(memoryview(data))
