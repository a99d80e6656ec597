"""A migration: what makes rows of one version of a table those of another. `versions.py` runs it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .table_codec import TableCodec
from .untyped_rows import UntypedCodec


class _Drop:
    __slots__ = ()

    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()  # what a migration returns for a row that is to be no more


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
    codec: TableCodec | None = None

    def read(self, key: bytes, value: bytes, has_windows: bool) -> tuple[Any, Any]:
        """A row of the first version. Without a codec: what was an instance of a class is a dict of its attributes."""
        codec = self.codec or _UNTYPED
        if has_windows:
            codec = codec.windowed()
        return codec.decode_key(key), codec.decode_value(value)


_UNTYPED = UntypedCodec()
