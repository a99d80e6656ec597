"""Values and table keys as bytes. A codec is a pair of functions found by name; JSON is orjson's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from ..errors import AppError


class Codec(NamedTuple):
    """`encode` takes what the app sends, `decode` gives what it gets; null stays None outside of both."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


CODECS = {
    "json": Codec(orjson.dumps, orjson.loads),
    "raw": Codec(bytes, bytes),
    "str": Codec(str.encode, lambda data: bytes(data).decode()),
}


def codec(name: str) -> Codec:
    try:
        return CODECS[name]
    except KeyError:
        raise AppError(f"no codec is called '{name}'; there are {', '.join(CODECS)}") from None


def encode_key(key: Any) -> bytes | None:
    """A record's key: bytes as they are, text as UTF-8, anything else as JSON."""
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else orjson.dumps(key)


def tag_bytes(key: Any) -> Any:
    """Bytes in a table key as JSON has them."""
    if isinstance(key, bytes):
        return {"bytes": key.decode("latin-1")}
    raise TypeError(f"{type(key).__name__} is no JSON")


def freeze(key: Any) -> Any:
    """A table key as JSON gave it back: its lists are the tuples they were, its objects the bytes."""
    if isinstance(key, list):
        return tuple(map(freeze, key))
    return key["bytes"].encode("latin-1") if isinstance(key, dict) else key
