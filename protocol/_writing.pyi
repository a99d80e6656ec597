from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

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
