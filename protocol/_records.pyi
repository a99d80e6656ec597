from typing_extensions import Buffer

from ._batch_header import BatchHeader
from ._columns import ColumnBuffers

COMPILED: bool

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

class Section:
    def __init__(
        self,
        buf: Buffer,
        start: int,
        stop: int,
        header: BatchHeader,
        from_offset: int = 0,
        to_offset: int = ...,
        partial: bool = False,
    ) -> None: ...
    def go_on(self, buf: Buffer, partial: bool) -> None: ...
    @property
    def append_time(self) -> bool: ...
    @property
    def partial(self) -> bool: ...
    @property
    def left(self) -> int: ...
    @property
    def rows_at_most(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...

def read_lists(
    section: Section,
    offsets: list[int],
    timestamps: list[int],
    keys: list[bytes | None],
    values: list[bytes | None],
) -> None: ...
def read_records(section: Section, out: list[Record]) -> None: ...
def read_columns(section: Section, columns: ColumnBuffers) -> None: ...
def check_records(section: Section) -> tuple[int, int, int, int, bool]: ...
