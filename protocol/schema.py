"""The message language: what the files of `messages/` are written in.

A struct is a class whose attributes are declared by the functions below, each with the versions that carry it;
the class holds the superset of all versions and is slotted, with keyword arguments and Kafka's defaults. An `Api` or a
`Codec` binds a struct to its version range; `codegen` compiles the functions of one version at its first use.
Names and facts are those of Kafka's message definitions, in snake case; nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from .errors import DecodeError, EncodeError, ProtocolError
from .primitives import ZERO_UUID

Buffer = bytes | bytearray | memoryview
Part = Any  # something with __len__ that the sending side knows: a buffer or a range of a file
NEWEST = 32767


class Versions(NamedTuple):
    """An inclusive range of versions."""

    low: int
    high: int

    @classmethod
    def of(cls, text: str) -> Versions:
        """From Kafka's notation: "3+", "0-12", "4", or "none"."""
        if text == "none":
            return cls(NEWEST + 1, NEWEST)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def has(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        return f"{self.low}+" if self.high == NEWEST else f"{self.low}-{self.high}"


NEVER = Versions.of("none")


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field. `of` is the element of an array, `struct` the class of a struct or array of structs.

    is_kept: an array's elements may be given as bytes, see `array`.
    """

    kind: str
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None
    ignorable: bool
    of: Field | None = None
    struct: type[Struct] | None = None
    name: str = ""
    is_kept: bool = False


# The functions return Any so that `index: int = int32()` is what a type checker and a reader see as the attribute.
def _scalar(kind: str, zero: Any) -> Callable[..., Any]:
    def declare(
        versions: str = "0+",
        *,
        default: Any = zero,
        nullable: str = "none",
        tag: int | None = None,
        ignorable: bool = False,
    ) -> Any:
        return Field(kind, Versions.of(versions), Versions.of(nullable), default, tag, ignorable)

    declare.__doc__ = f"A field of kind {kind}. A field with a `tag` is a tagged field in all its versions."
    return declare


int8 = _scalar("int8", 0)
int16 = _scalar("int16", 0)
uint16 = _scalar("uint16", 0)
int32 = _scalar("int32", 0)
uint32 = _scalar("uint32", 0)
int64 = _scalar("int64", 0)
float64 = _scalar("float64", 0.0)
boolean = _scalar("bool", False)
uuid = _scalar("uuid", ZERO_UUID)
string = _scalar("string", "")
octets = _scalar("bytes", b"")
batches = _scalar("records", None)
"""Record batches: decoded to a memoryview slice of the input; encoded from None, a buffer or a list of parts."""


def array(
    of: Any,
    versions: str = "0+",
    *,
    default: Any = (),
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    is_kept: bool = False,
) -> Any:
    """A list of a struct class, or of a scalar given by its function: `array(int32)`. Empty unless default is None.

    is_kept: who encodes it may give an element as `bytes`, the struct encoded before in the same version.
    """
    struct = of if isinstance(of, type) else None
    element = None if struct else of()
    nullables = Versions.of(nullable)
    return Field("array", Versions.of(versions), nullables, default, tag, ignorable, element, struct, is_kept=is_kept)


def nested(
    struct: type[Struct],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """One struct. None stands for its absence: a null, or a tagged struct at Kafka's defaults.

    One that can be neither is at its defaults unless given, and so is one that can be both: there None is a null.
    """
    nullables = Versions.of(nullable)
    default = None if (tag is not None) != (nullables != NEVER) else ()
    return Field("struct", Versions.of(versions), nullables, default, tag, ignorable, None, struct)


class _StructType(type):
    """Takes the declared fields of a class body and makes slots and a keyword __init__ of them."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _StructType:
        fields = tuple(replace(f, name=n) for n, f in namespace.items() if isinstance(f, Field))
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple(f.name for f in fields)
        if fields or "Struct" in (base.__name__ for base in bases):
            namespace["FIELDS"] = fields
            namespace["__init__"] = _make_init(fields)
        return super().__new__(mcls, name, bases, namespace)


class _Unset:
    def __repr__(self) -> str:
        return "..."


def _make_init(fields: Sequence[Field]) -> Callable[..., None]:
    scope: dict[str, Any] = {"UNSET": _Unset()}
    arguments, body = ["self"], []
    for field in fields:
        if field.default == () and field.kind in ("array", "struct"):
            new = "[]" if field.kind == "array" else f"s_{field.name}()"
            default, value = "UNSET", f"{new} if {field.name} is UNSET else {field.name}"
            scope[f"s_{field.name}"] = field.struct
        else:
            default, value = f"d_{field.name}", field.name
            scope[default] = field.default
        arguments.append(("*, " if len(arguments) == 1 else "") + f"{field.name}={default}")
        body.append(f"    self.{field.name} = {value}")
    exec(f"def __init__({', '.join(arguments)}):\n" + "\n".join(body or ["    pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    return init


class Struct(metaclass=_StructType):
    """Base of all messages and their parts. Two are equal when of one class with equal fields."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    API: ClassVar[Api]

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **fields: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={_shown(getattr(self, f.name, '?'))}" for f in self.FIELDS)
        return f"{type(self).__module__.rpartition('.')[2]}.{type(self).__qualname__}({fields})"


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(bytes(value) if isinstance(value, memoryview) else value)


Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any], list[Part]]


class Codec:
    """A struct with its versions: functions compiled at the first use of each version and kept."""

    __slots__ = ("_decoders", "_encoders", "flexible", "name", "struct", "versions")

    def __init__(self, struct: type[Struct], name: str, versions: str, flexible: str) -> None:
        self.struct = struct
        self.name = name
        self.versions = Versions.of(versions)
        self.flexible = Versions.of(flexible)
        self._decoders: dict[int, Decoder] = {}
        self._encoders: dict[int, Encoder] = {}

    def decode(self, buf: Any, offset: int, version: int) -> tuple[Any, int]:
        """The message that starts at offset, and the position after it. Raises DecodeError."""
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self.decoder(version)
        return decoder(buf, offset)

    def encode(self, message: Any, version: int) -> list[Part]:
        """The message as parts to be sent one after the other. Raises EncodeError."""
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self.encoder(version)
        return encoder(message)

    def encode_bytes(self, message: Any, version: int) -> bytes:
        """The same joined; only for messages whose parts are all buffers."""
        return b"".join(self.encode(message, version))

    def decoder(self, version: int) -> Decoder:
        """The compiled function `(buf, offset) -> (message, end)` of one version."""
        if version not in self._decoders:
            from .codegen_decode import DecoderSource  # allowed: it reads the Codec that it compiles

            self._check(version, DecodeError)
            self._decoders[version] = DecoderSource(self, version).compile("decode")
        return self._decoders[version]

    def encoder(self, version: int) -> Encoder:
        """The compiled function `(message) -> parts` of one version."""
        if version not in self._encoders:
            from .codegen_encode import EncoderSource  # allowed: it reads the Codec that it compiles

            self._check(version, EncodeError)
            self._encoders[version] = EncoderSource(self, version).compile("encode")
        return self._encoders[version]

    def _check(self, version: int, error: type[ProtocolError]) -> None:
        if not self.versions.has(version):
            raise error(f"{self.name} has versions {self.versions}, not {version}")


class Api:
    """One request and its response: key, versions, codecs and which header goes with a version."""

    __slots__ = ("flexible_since", "key", "max_version", "min_version", "name", "request", "response")

    def __init__(
        self,
        key: int,
        name: str,
        request: type[Struct],
        response: type[Struct],
        *,
        versions: str,
        flexible: str,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version, self.max_version = Versions.of(versions)
        self.flexible_since = Versions.of(flexible).low
        self.request = Codec(request, f"{name}Request", versions, flexible)
        self.response = Codec(response, f"{name}Response", versions, flexible)
        request.API = response.API = self

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, versions {self.min_version}-{self.max_version})"

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def decode_request(self, buf: Any, offset: int, version: int) -> Any:
        """The request body at offset. Records are slices of buf: valid as long as buf is. Raises DecodeError."""
        return self.request.decode(buf, offset, version)[0]

    def encode_request(self, message: Any, version: int) -> list[Part]:
        return self.request.encode(message, version)

    def decode_response(self, buf: Any, offset: int, version: int) -> Any:
        """The response body at offset. Records are slices of buf: valid as long as buf is. Raises DecodeError."""
        return self.response.decode(buf, offset, version)[0]

    def encode_response(self, message: Any, version: int) -> list[Part]:
        return self.response.encode(message, version)

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 when flexible; ApiVersions always answers with 0, so that any client can read it (KIP-511)."""
        return 1 if version >= self.flexible_since and self.key != 18 else 0
