"""The encode function of one version, as source: fills one bytearray, cut only where records are placed as they are."""

from __future__ import annotations

import struct as struct_module

from .codegen import FIXED, Source
from .errors import EncodeError
from .primitives import UVARINTS, write_uvarint
from .schema import NEVER, Field, Struct


class EncoderSource(Source):
    """w is the bytearray being filled; out the finished parts, of messages that carry records."""

    def function(self) -> None:
        self.scope.update(
            pack=struct_module.pack,
            UV=UVARINTS,
            uvarint=write_uvarint,
            EncodeError=EncodeError,
            UNFIT=(struct_module.error, TypeError, AttributeError, ValueError),
        )
        records = self.has_records(self.codec.struct)
        self.emit("def encode(o0):")
        self.indent = 1
        self.emit("try:")
        self.indent = 2
        self.emit("w = bytearray()")
        if records:
            self.emit("out = []")
        self.struct(self.codec.struct, "o0")
        self.flush()
        if records:
            self.emit("if w:")
            self.emit("    out.append(w)")
        self.emit("return out" if records else "return [w]")
        self.indent = 1
        self.emit("except UNFIT as error:")
        self.emit(f"    raise EncodeError(f'{self.title}: {{error}}') from error")

    def flush(self) -> None:
        if not self.run:
            return
        fmt = "".join(f for f, _ in self.run)
        values = ", ".join(v for _, v in self.run if v)
        if values:
            self.emit(f"w += {self.packer(fmt, 'pack')}({values})")
        else:
            self.emit(f"w += {bytes(len(fmt))!r}")
        self.run.clear()

    def struct(self, cls: type[Struct], var: str) -> None:
        for field in self.absent(cls):
            if not field.ignorable:
                self.emit(f"if {self.differs(field, var)}:")
                self.emit(f"    raise EncodeError('{self.title} cannot carry {field.name}')")
        for field in self.present(cls):
            self.value(field, f"{var}.{field.name}", field.name)
        if self.flexible:
            self.tags(cls, var)

    def differs(self, field: Field, var: str) -> str:
        """A condition: the field is not at its default."""
        value = f"{var}.{field.name}"
        if field.default is None:
            return f"{value} is not None"
        if field.kind == "struct":
            return f"{value} != {self.constant('C', field.struct)}()"
        if field.kind in ("array", "string", "bytes", "bool") and not field.default:
            return value if field.nullable == NEVER else f"{value} is None or {value}"
        return f"{value} != {self.constant('D', field.default) if field.kind == 'uuid' else repr(field.default)}"

    def value(self, field: Field, source: str, name: str) -> None:
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind][0], source))
        elif field.kind == "struct":
            self.struct_value(field, source, name)
        elif field.kind == "array":
            self.array(field, source, name)
        elif field.kind == "records":
            self.records(field, source, name)
        else:
            self.text(field, source, name)

    def null_check(self, field: Field, var: str, name: str) -> None:
        if not self.nullable(field):
            self.emit(f"if {var} is None:")
            self.emit(f"    raise EncodeError('{self.title}: {name} is null')")

    def size(self, fmt: str, count: str) -> None:
        """Writes n, which is -1 for null in old versions; in flexible ones a length plus one, or 0 for null."""
        if self.flexible:
            self.flush()
            self.emit(f"w += UV[{count}] if {count} < {len(UVARINTS)} else uvarint({count})")
        else:
            self.run.append((fmt, count))
            self.flush()

    def text(self, field: Field, source: str, name: str) -> None:
        one = " + 1" if self.flexible else ""
        fmt = "h" if field.kind == "string" else "i"
        encoded = ".encode()" if field.kind == "string" else ""
        if self.nullable(field):
            self.emit(f"s = {source}")
            self.emit("if s is None:")
            self.emit(f"    n = {'0' if self.flexible else '-1'}")
            self.emit("    s = b''")
            self.emit("else:")
            if encoded:
                self.emit("    s = s.encode()")
            self.emit(f"    n = len(s){one}")
        else:
            self.emit(f"s = {source}")
            self.null_check(field, "s", name)
            if encoded:
                self.emit("s = s.encode()")
            self.emit(f"n = len(s){one}")
        self.size(fmt, "n")
        self.emit("w += s")

    def records(self, field: Field, source: str, name: str) -> None:
        self.emit(f"s = {source}")
        self.null_check(field, "s", name)
        plus = " + 1" if self.flexible else ""
        self.emit("if s is None:")
        self.emit(f"    n = {'0' if self.flexible else '-1'}")
        self.emit("elif type(s) is list:")
        self.emit(f"    n = sum(map(len, s)){plus}")
        self.emit("else:")
        self.emit(f"    n = len(s){plus}")
        self.size("i", "n")
        self.emit(f"if n > {'1' if self.flexible else '0'}:")
        self.emit("    out.append(w)")
        self.emit("    w = bytearray()")
        self.emit("    if type(s) is list:")
        self.emit("        out += s")
        self.emit("    else:")
        self.emit("        out.append(s)")

    def array(self, field: Field, source: str, name: str) -> None:
        self.depth += 1
        array, item = f"a{self.depth}", f"o{self.depth}"
        self.emit(f"{array} = {source}")
        self.null_check(field, array, name)
        plus = " + 1" if self.flexible else ""
        null = "0" if self.flexible else "-1"
        element = field.of
        nullable = self.nullable(field)
        self.emit(f"n = {null} if {array} is None else len({array}){plus}" if nullable else f"n = len({array}){plus}")
        self.size("i", "n")
        if element is not None and element.kind in FIXED:
            fmt = FIXED[element.kind][0]
            self.emit(f"if {array}:")
            many = f"'>' + '{fmt}' * len({array})" if fmt == "16s" else f"'>%d{fmt}' % len({array})"
            self.emit(f"    w += pack({many}, *{array})")
        else:

            def loop() -> None:
                if field.struct is not None:
                    if field.is_kept:
                        self.emit(f"if type({item}) is bytes:")
                        self.emit(f"    w += {item}")
                        self.emit("    continue")
                    self.struct(field.struct, item)
                else:
                    assert element is not None
                    self.value(element, item, name)

            self.block(f"for {item} in {array} or ():" if nullable else f"for {item} in {array}:", loop)
        self.depth -= 1

    def struct_value(self, field: Field, source: str, name: str) -> None:
        assert field.struct is not None
        inner = field.struct
        self.depth += 1
        item = f"o{self.depth}"
        self.emit(f"{item} = {source}")
        if self.nullable(field):
            self.flush()
            self.emit(f"if {item} is None:")
            self.emit("    w += b'\\xff'" if field.tag is None else "    w += b'\\x00'")

            def body() -> None:
                self.emit("w += b'\\x01'")
                self.struct(inner, item)

            self.block("else:", body)
        else:
            self.null_check(field, item, name)
            self.struct(inner, item)
            self.flush()  # the run holds values of item, whose name may be used again
        self.depth -= 1

    def tags(self, cls: type[Struct], var: str) -> None:
        known = self.tagged(cls)
        if not known:
            self.run.append(("x", ""))
            return
        self.flush()
        conditions = [f"({self.differs(f, var)})" for f in known]
        outer = f"w{self.depth}"

        def section() -> None:
            count = " + ".join(f"(1 if {c} else 0)" for c in conditions)
            self.emit(f"w += UV[{count}]")
            for field, condition in zip(known, conditions, strict=True):
                self.block(f"if {condition}:", lambda f=field: one(f))  # type: ignore[misc]

        def one(field: Field) -> None:
            self.emit(f"{outer} = w")
            self.emit("w = bytearray()")
            self.value(field, f"{var}.{field.name}", field.name)
            self.flush()
            self.emit(f"{outer} += uvarint({field.tag})")
            self.emit(f"{outer} += uvarint(len(w))")
            self.emit(f"{outer} += w")
            self.emit(f"w = {outer}")

        self.block(f"if {' or '.join(conditions)}:", section)
        self.emit("else:")
        self.emit("    w += b'\\x00'")
