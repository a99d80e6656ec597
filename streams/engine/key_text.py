"""What a key that a person types, or a request has, may be in a table."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson

from ..errors import AppError
from .serialization import DecodeError, Serializers


def readings(text: str, key_type: Any = None) -> list[Any]:
    """Text, bytes, what a topic of this type has, and what the text is as JSON."""
    found: list[Any] = [text, text.encode()]
    if key_type is not None:
        with contextlib.suppress(DecodeError, AppError):
            found.append(Serializers().key_coder(key_type).decode(text.encode()))
    try:
        value = orjson.loads(text)
    except ValueError:
        return found
    return [*found, tuple(value) if isinstance(value, list) else value] if not isinstance(value, dict) else found
