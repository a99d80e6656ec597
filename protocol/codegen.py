"""Compiles a declared struct into a function of one version; `codegen_decode` and `codegen_encode` write its body.

The generated code is straight-line: neighbouring fixed-size fields, and the length that ends such a run, are one
precompiled struct call; nested structs are inlined. Slices past the end of a buffer come out short instead of
failing, so a frame that ends early is found by IndexError, struct.error or the last check of every decoder; array
counts are checked against the bytes left before anything is allocated.
"""

from __future__ import annotations

import linecache
import struct as struct_module
from collections.abc import Callable
from typing import Any

from .schema import Codec, Field, Struct

FIXED = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}


def min_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes on the wire."""
    return sum(
        min_field_size(f, version, flexible) for f in cls.FIELDS if f.tag is None and f.versions.has(version)
    ) + (1 if flexible else 0)


def min_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        assert field.struct is not None
        return 1 if field.nullable.has(version) else min_size(field.struct, version, flexible)
    return 1 if flexible else 2 if field.kind == "string" else 4


class Source:
    """Lines of one function, its constants, and the run of fixed-size values not yet written."""

    def __init__(self, codec: Codec, version: int) -> None:
        self.codec = codec
        self.version = version
        self.flexible = codec.flexible.has(version)
        self.title = f"{codec.name} v{version}"
        self.lines: list[str] = []
        self.indent = 0
        self.depth = 0
        self.scope: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def block(self, head: str, body: Callable[[], None]) -> None:
        self.emit(head)
        self.indent += 1
        before = len(self.lines)
        body()
        self.flush()
        if len(self.lines) == before:
            self.emit("pass")
        self.indent -= 1

    def flush(self) -> None:
        raise NotImplementedError

    def constant(self, prefix: str, value: Any) -> str:
        for name, known in self.scope.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name

    def packer(self, fmt: str, method: str) -> str:
        name = f"{method}_{fmt.replace('?', 'o')}"
        if name not in self.scope:
            self.scope[name] = getattr(struct_module.Struct(">" + fmt), method)
        return name

    def present(self, cls: type[Struct]) -> list[Field]:
        return [f for f in cls.FIELDS if f.tag is None and f.versions.has(self.version)]

    def tagged(self, cls: type[Struct]) -> list[Field]:
        tagged = [f for f in cls.FIELDS if f.tag is not None and f.versions.has(self.version)]
        if tagged and not self.flexible:
            raise TypeError(f"{self.title}: tagged fields in a version that is not flexible")
        return sorted(tagged, key=lambda f: f.tag or 0)

    def absent(self, cls: type[Struct]) -> list[Field]:
        return [f for f in cls.FIELDS if not f.versions.has(self.version)]

    def nullable(self, field: Field) -> bool:
        return field.nullable.has(self.version)

    def has_records(self, cls: type[Struct]) -> bool:
        fields = self.present(cls) + self.tagged(cls)
        return any(f.kind == "records" or (f.struct is not None and self.has_records(f.struct)) for f in fields)

    def compile(self, function: str) -> Any:
        self.function()
        source = "\n".join(self.lines) + "\n"
        filename = f"<{function} {self.title}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)  # for tracebacks
        exec(compile(source, filename, "exec"), self.scope)
        return self.scope[function]

    def function(self) -> None:
        raise NotImplementedError
