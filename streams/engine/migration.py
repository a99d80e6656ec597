"""A migration: what makes rows of one version of a table those of another. `versions.py` runs it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .untyped_rows import UntypedCodec


class _Drop:
    __slots__ = ()

    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()  # what a migration returns for a row that is to be no more


class RowReader(Protocol):
    def decode_key(self, data: bytes) -> Any: ...

    def decode_value(self, data: bytes) -> Any: ...

    def windowed(self) -> RowReader: ...


@dataclass(frozen=True)
class Migration:
    """From one version of a table's rows to another. function: gets a row's key and value, and returns the value, or
    with_keys a pair; or `DROP`. merge: of two values that come to have one key. codec: reads rows of the first version.
    """

    from_version: int
    to_version: int
    function: Callable[[Any, Any], Any]
    with_keys: bool = False
    merge: Callable[[Any, Any], Any] | None = None
    codec: RowReader | None = None

    def read(self, key: bytes, value: bytes, has_windows: bool) -> tuple[Any, Any]:
        """A row of the first version. Without a codec: what was an instance of a class is a dict of its attributes."""
        codec: RowReader = self.codec or _UNTYPED
        if has_windows:
            codec = codec.windowed()
        return codec.decode_key(key), codec.decode_value(value)


def by_version(functions: Mapping[int, Callable[[Any, Any], Any]]) -> list[Migration]:
    """Each from its version to the next one."""
    return [Migration(version, version + 1, function) for version, function in sorted(functions.items())]


_UNTYPED = UntypedCodec()
