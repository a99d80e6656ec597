"""Schemas, and those of an app's own that read headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from isthmus.streams.api.schema import Schema
from isthmus.streams.engine.serialization import DecodeError, Serializers
from isthmus.streams.models import Record


class Order(Record):
    id: str


@dataclass
class App:
    serializers: Serializers


@dataclass
class Message:
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


APP = App(Serializers())


class ByHeader(Schema):
    """The codec of a value stands in a header."""

    def loads_value(self, app: Any, message: Any, *, loads: Any = None, serializer: Any = None) -> Any:
        return super().loads_value(app, message, loads=loads, serializer=message.headers["codec"].decode())

    def on_dumps_value_prepare_headers(self, value: Any, headers: Any) -> Any:
        return {**headers, "codec": b"json"}


def test_a_schema_binds_its_types_and_codecs():
    bound = Schema(key_type=int, value_type=Order, value_serializer="msgpack").bind(APP.serializers)
    data = bound.encode_value(Order("a"))
    assert bound.schema is None
    assert bound.encode_key(5) == b"5" and bound.decode_key(b"5") == 5
    assert bound.decode_value(data) == Order("a")
    assert bound.read(APP, Message(b"5", data, {})) == (5, Order("a"))
    assert bound.write(APP, 5, Order("a"), {"h": b"1"}) == (b"5", data, {"h": b"1"})


def test_a_schema_of_one_s_own_reads_and_writes_whole_messages():
    bound = ByHeader(value_type=Order).bind(APP.serializers)
    assert bound.schema is not None
    key, value, headers = bound.write(APP, "k", Order("a"), {"h": b"1"})
    assert (key, headers) == (b"k", {"h": b"1", "codec": b"json"})
    assert bound.read(APP, Message(key, value, headers)) == (b"k", Order("a"))
    packed = Order("a").dumps(serializer="msgpack")
    assert bound.read(APP, Message(None, packed, {"codec": b"msgpack"})) == (None, Order("a"))
    with pytest.raises(DecodeError, match="codec"):
        bound.read(APP, Message(b"k", value, {}))
    assert bound.read(APP, Message(b"k", None, {})) == (b"k", None)


def test_a_schema_may_refuse_null():
    for given, expected in ((None, None), (True, None)):
        assert Schema(value_type=Order, allow_empty=given).bind(APP.serializers).decode_value(None) is expected
    bound = Schema(value_type=Order, allow_empty=False).bind(APP.serializers)
    with pytest.raises(DecodeError, match="allow_empty=False"):
        bound.decode_value(None)
    with pytest.raises(DecodeError) as refused:
        bound.value.decode_column([Order("a").dumps(), None])
    assert refused.value.position == 1
    assert bound.decode_key(None) is None


def test_what_is_given_later_replaces():
    schema = Schema(value_type=Order)
    schema.update(value_serializer="msgpack", key_type=str)
    assert (schema.value_type, schema.value_serializer, schema.key_type) == (Order, "msgpack", str)
    assert repr(schema) == "<Schema: key str (default), value Order (msgpack)>"
