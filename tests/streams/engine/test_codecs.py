"""Codecs by name and in chains, and the JSON that is Faust's."""

from __future__ import annotations

import dataclasses
from collections import deque
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from isthmus.streams.engine import codecs
from isthmus.streams.engine.codecs import Codec, get_codec, json_dumps
from isthmus.streams.errors import AppError


class Reversed(Codec):
    def _dumps(self, obj: Any) -> bytes:
        return obj[::-1]

    def _loads(self, data: bytes) -> Any:
        return data[::-1]


class Side(Enum):
    BUY = "buy"


@dataclasses.dataclass
class Data:
    a: Any


class Struct(msgspec.Struct):
    a: int


class Pydantic(pydantic.BaseModel):
    a: Decimal


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("raw", b"\xff", b"\xff"),
        ("str", "é", "é".encode()),
        ("text", "é", "é".encode()),
        ("binary", b"\xff", b"/w=="),
        ("msgpack", {"a": [1, None]}, b"\x81\xa1a\x92\x01\xc0"),
        ("yaml", {"a": [1, None]}, None),
        ("pickle", {"a": (1, {2})}, None),
        ("json|binary", [1], b"WzFd"),
        ("json | binary | binary", [1], b"V3pGZA=="),
    ],
)
def test_codecs_by_name(name: str, value: Any, data: bytes | None):
    codec = get_codec(name)
    assert data is None or codec.dumps(value) == data
    assert codec.loads(codec.dumps(value)) == value
    assert codec.reader(codec.writer(value)) == value


def test_a_codec_of_one_s_own_is_registered_by_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codecs, "CODECS", dict(codecs.CODECS))
    codecs.register("reversed", Reversed())
    assert get_codec("json|reversed").dumps([1, 2]) == b"]2,1["
    assert get_codec("json|reversed").loads(b"]2,1[") == [1, 2]
    assert repr(get_codec("json") | Reversed()) == "JsonCodec() | Reversed()"
    with pytest.raises(AppError, match=r"no codec is called 'lost'; there are json, .*register\(\) adds one"):
        get_codec("json|lost")


def test_arguments_of_a_codec_survive_a_chain():
    class Shifted(Codec):
        def __init__(self, children: tuple[Codec, ...] | None = None, *, by: int = 0) -> None:
            super().__init__(children, by=by)
            self.by = by

        def _dumps(self, obj: Any) -> bytes:
            return bytes(each + self.by for each in obj)

        def _loads(self, data: bytes) -> Any:
            return bytes(each - self.by for each in data)

    chain = Shifted(by=1) | Shifted(by=2)
    assert (chain.dumps(b"a"), chain.loads(b"d"), repr(chain)) == (b"d", b"a", "Shifted(1) | Shifted(2)")


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (datetime(2020, 1, 2, 3, 4, 5, 600, UTC), b'"2020-01-02T03:04:05.000600Z"'),
        (datetime(2020, 1, 2, tzinfo=timezone(timedelta(hours=2))), b'"2020-01-02T00:00:00+02:00"'),
        (date(2020, 1, 2), b'"2020-01-02"'),
        (Decimal("1.50"), b'"1.50"'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        (Side.BUY, b'"buy"'),
        ({3, 1, 2}, b"[1,2,3]"),
        ({1, "a"}, b'[1,"a"]'),
        (deque([1]), b"[1]"),
        (b"text", b'"text"'),
        ({1: 2, None: 3}, b'{"1":2,"null":3}'),
        (Data({1}), b'{"a":[1]}'),
        (Struct(1), b'{"a":1}'),
        (Pydantic(a=Decimal("1.5")), b'{"a":"1.5"}'),
        (float("nan"), b"null"),
    ],
)
def test_json_of_what_is_not_json_s(value: Any, data: bytes):
    assert json_dumps(value) == data
    assert json_dumps([value]) == b"[%s]" % data


@pytest.mark.parametrize("value", [object(), b"\xff", 2**70, "\ud800"])
def test_what_json_cannot_hold(value: Any):
    with pytest.raises(TypeError):
        json_dumps(value)
