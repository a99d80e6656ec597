"""What a key that a person types, or a request has, may be in a table."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import orjson

from ..errors import AppError
from .codecs import encode_key
from .serialization import DecodeError, Serializers

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def bytes_text(data: bytes) -> str:
    """Bytes as people and JSON are shown them: as text, and as \\xff what is none."""
    return data.decode(errors="backslashreplace")


def readings(text: str, key_type: Any = None) -> list[Any]:
    """Text, bytes, also as `bytes_text` shows them, what a topic of this type has, and what the text is as JSON."""
    data = text.encode(errors="surrogateescape")
    found: list[Any] = [text, data]
    if _ESCAPED.search(data):
        found.append(_ESCAPED.sub(lambda each: bytes.fromhex(each[1].decode()), data))
    if key_type is not None:
        with contextlib.suppress(DecodeError, AppError):
            found.append(Serializers().key_coder(key_type).decode(data))
    try:
        value = orjson.loads(text)
    except ValueError:
        return found
    return [*found, _key(value)] if not isinstance(value, dict) else found


def encodings(text: str, key_type: Any = None) -> list[bytes]:
    """What records with this key may have."""
    known: dict[bytes, None] = {}
    for each in readings(text, key_type):
        with contextlib.suppress(TypeError, ValueError):  # what cannot be a record's key
            if (data := encode_key(each)) is not None:
                known[data] = None
    return list(known)


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, list) else value
