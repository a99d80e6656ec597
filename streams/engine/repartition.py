"""How records are written to the topics by which pipelines give them another key: what a table takes comes back as it
was, and so do changes of tables and results of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .operators.keeping import pack, unpack
from .record_rows import RecordCodec
from .serialization import Coder, Serialization

_ROWS = RecordCodec()


def _encode_value(value: Any) -> bytes | None:
    return None if value is None else _ROWS.encode_value(pack(value))


def _decode_value(data: bytes | None) -> Any:
    return None if data is None else unpack(_ROWS.decode_value(data))


def _encode_key(key: Any) -> bytes | None:
    return None if key is None else _ROWS.encode_key(key)


def _decode_key(data: bytes | None) -> Any:
    return None if data is None else _ROWS.decode_key(data)


def _column(decode: Callable[[bytes | None], Any]) -> Callable[[Sequence[bytes | None]], list[Any]]:
    return lambda column: list(map(decode, column))


SERIALIZATION = Serialization(
    Coder(_encode_key, _decode_key, _column(_decode_key)), Coder(_encode_value, _decode_value, _column(_decode_value))
)
