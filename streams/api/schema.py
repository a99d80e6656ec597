"""`Schema`: types and codecs of a topic in one object; a subclass may read and write whole messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.codecs import CodecArg
from ..engine.serialization import Coder, Headers, Message, Serialization, Serializers, refuse_empty
from . import absent

_METHODS = (
    "loads_key loads_value dumps_key dumps_value on_dumps_key_prepare_headers on_dumps_value_prepare_headers"
).split()


class Schema:
    """Types and codecs of keys and values, as in Faust.

    key_type, value_type: `Record` and other classes; None: what the codec gives.
    key_serializer, value_serializer: codecs; None: the type's own, else the app's.
    allow_empty: False refuses a null value as one that cannot be decoded.

    A subclass may override `loads_key` and `loads_value`, which get the message with its headers, and `dumps_key` and
    `dumps_value`, which return bytes and headers. Reading and writing then goes record by record.
    """

    def __init__(
        self,
        *,
        key_type: Any = None,
        value_type: Any = None,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
        allow_empty: bool | None = None,
    ) -> None:
        self.key_type = key_type
        self.value_type = value_type
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.allow_empty = allow_empty

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Schema", name, dir(type(self))))

    def update(
        self,
        *,
        key_type: Any = None,
        value_type: Any = None,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
        allow_empty: bool | None = None,
    ) -> None:
        """Replace what is given."""
        given = {
            "key_type": key_type,
            "value_type": value_type,
            "key_serializer": key_serializer,
            "value_serializer": value_serializer,
            "allow_empty": allow_empty,
        }
        vars(self).update({name: value for name, value in given.items() if value is not None})

    def loads_key(self, app: Any, message: Message, *, loads: Any = None, serializer: CodecArg = None) -> Any:
        """The key of a message. loads: in place of `app.serializers.loads_key`."""
        load = loads or app.serializers.loads_key
        return load(self.key_type, message.key, serializer=serializer or self.key_serializer)

    def loads_value(self, app: Any, message: Message, *, loads: Any = None, serializer: CodecArg = None) -> Any:
        """The value of a message. loads: in place of `app.serializers.loads_value`."""
        load = loads or app.serializers.loads_value
        return load(self.value_type, message.value, serializer=serializer or self.value_serializer)

    def dumps_key(self, app: Any, key: Any, *, serializer: CodecArg = None, headers: Headers) -> tuple[Any, Headers]:
        """Bytes of a key, and the headers of the message."""
        data = app.serializers.dumps_key(self.key_type, key, serializer=serializer or self.key_serializer)
        return data, self.on_dumps_key_prepare_headers(key, headers)

    def dumps_value(
        self, app: Any, value: Any, *, serializer: CodecArg = None, headers: Headers
    ) -> tuple[Any, Headers]:
        """Bytes of a value, and the headers of the message."""
        data = app.serializers.dumps_value(self.value_type, value, serializer=serializer or self.value_serializer)
        return data, self.on_dumps_value_prepare_headers(value, headers)

    def on_dumps_key_prepare_headers(self, key: Any, headers: Headers) -> Headers:
        """For a subclass to add headers."""
        return headers

    def on_dumps_value_prepare_headers(self, value: Any, headers: Headers) -> Headers:
        """For a subclass to add headers."""
        return headers

    def bind(self, serializers: Serializers) -> Serialization:
        """The functions of a topic with this schema, in an app with these codecs. Raises AppError for a type and a
        codec that do not fit."""
        key = serializers.key_coder(self.key_type, self.key_serializer)
        value: Coder = serializers.value_coder(self.value_type, self.value_serializer)
        if self.allow_empty is False:
            value = refuse_empty(value)
        return Serialization(key, value, self if self.is_own else None)

    @property
    def is_own(self) -> bool:
        """Whether it is of a subclass that reads or writes messages in its own way."""
        return any(getattr(type(self), name) is not getattr(Schema, name) for name in _METHODS)

    def __repr__(self) -> str:
        sides = ((self.key_type, self.key_serializer), (self.value_type, self.value_serializer))
        (key, key_codec), (value, value_codec) = (
            (getattr(type_, "__name__", type_) or "any", codec or "default") for type_, codec in sides
        )
        return f"<{type(self).__name__}: key {key} ({key_codec}), value {value} ({value_codec})>"
