from array import array
from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

from .errors import KafkaError

COMPILED: bool
HEADER_SIZE: int

class CorruptBatch(KafkaError):
    def __init__(self, message: str) -> None: ...

class BatchHeader:
    @property
    def base_offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def partition_leader_epoch(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def records_count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def last_sequence(self) -> int: ...

class Record:
    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

def read_header(buf: Buffer, position: int = 0) -> BatchHeader: ...
def read_lists(
    buf: Buffer,
    start: int,
    stop: int,
    header: BatchHeader,
    from_offset: int,
    to_offset: int,
    offsets: list[int],
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
) -> None: ...
def read_records(
    buf: Buffer,
    start: int,
    stop: int,
    header: BatchHeader,
    from_offset: int,
    to_offset: int,
    out: list[Record],
) -> None: ...
def check_records(buf: Buffer, start: int, stop: int, header: BatchHeader) -> tuple[int, int, int, bool]: ...

class ColumnWriter:
    rows: int
    offsets: array[int]
    timestamps: array[int]
    key_offsets: array[int]
    value_offsets: array[int]
    key_data: bytearray
    value_data: bytearray
    key_valid: bytearray
    value_valid: bytearray
    key_nulls: int
    value_nulls: int
    header_rows: array[int] | None
    header_key_offsets: array[int]
    header_value_offsets: array[int]
    header_key_data: bytearray
    header_value_data: bytearray
    header_nulls: list[int]
    def __init__(self, rows: int, data_bytes: int) -> None: ...
    def add(
        self, buf: Buffer, start: int, stop: int, header: BatchHeader, from_offset: int, to_offset: int
    ) -> None: ...
    def finish(self) -> None: ...

class RecordsWriter:
    @property
    def max_bytes(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    def __init__(self, max_bytes: int) -> None: ...
    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
    ) -> bool: ...
    def extend(
        self, records: Iterable[tuple[int, Buffer | None, Buffer | None, Sequence[tuple[str, Buffer | None]]]]
    ) -> int: ...
    def extend_columns(
        self,
        timestamps: Sequence[int],
        keys: Sequence[Buffer | None],
        values: Sequence[Buffer | None],
        start: int = 0,
    ) -> int: ...
    def buffer(self) -> memoryview: ...
