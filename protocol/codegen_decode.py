"""The decode function of one version, as source: reads a buffer front to back into slotted objects."""

from __future__ import annotations

import struct as struct_module

from .codegen import FIXED, Source, min_field_size, min_size
from .errors import DecodeError
from .primitives import ZERO_UUID, read_uvarint, read_uvarint_rest, skip_tagged_fields
from .schema import Field, Struct

# In all arrays of one request. A few bytes of a request become some hundreds of memory, so that without a bound 100 MB
# of tiny topics would be several GB. Kafka's own clients stay far below; answers, of servers that one chose, have none.
REQUEST_ELEMENTS_MAX = 500_000
STRING_BYTES_MAX = 32767  # also where the length is a varint, as in Kafka


class DecoderSource(Source):
    """buf is the input, p the position, end its length, n the length or count just read, all_n the sum of counts."""

    @property
    def is_bounded(self) -> bool:
        return self.codec.name.endswith("Request")

    def function(self) -> None:
        self.scope.update(
            new=object.__new__,
            unpack_from=struct_module.unpack_from,
            rest=read_uvarint_rest,
            uvarint=read_uvarint,
            skip_tags=skip_tagged_fields,
            DecodeError=DecodeError,
            MALFORMED=(IndexError, ValueError, OverflowError, struct_module.error),
            ZERO_UUID=ZERO_UUID,
        )
        self.emit("def decode(buf, p):")
        self.indent = 1
        self.emit("try:")
        self.indent = 2
        self.emit("end = len(buf)")
        if self.is_bounded:
            self.emit("all_n = 0")
        if self.has_records(self.codec.struct):
            self.emit("view = memoryview(buf)")
        self.struct(self.codec.struct, "o0")
        self.flush()
        self.emit("if p > end:")
        self.emit(f"    raise DecodeError('{self.title}: ends %d bytes after its frame' % (p - end))")
        self.emit("return o0, p")
        self.indent = 1
        self.emit("except MALFORMED as error:")
        self.emit(f"    raise DecodeError(f'{self.title}: {{error}}') from None")

    def flush(self) -> None:
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.emit(f"{self.run[0][1]} = buf[p]")
            self.emit("p += 1")
        else:
            fmt = "".join(f for f, _ in self.run)
            targets = ", ".join(t for _, t in self.run) + ("," if len(self.run) == 1 else "")
            self.emit(f"{targets} = {self.packer(fmt, 'unpack_from')}(buf, p)")
            self.emit(f"p += {struct_module.calcsize('>' + fmt)}")
        self.run.clear()

    def fail(self, condition: str, why: str) -> None:
        self.emit(f"if {condition}:")
        self.emit(f"    raise DecodeError('{self.title}: {why}')")

    def struct(self, cls: type[Struct], var: str) -> None:
        self.emit(f"{var} = new({self.constant('C', cls)})")
        for field in self.absent(cls) + self.tagged(cls):
            self.emit(f"{var}.{field.name} = {self.default(field)}")
        for field in self.present(cls):
            self.value(field, f"{var}.{field.name}", field.name)
        if self.flexible:
            self.tags(cls, var)

    def default(self, field: Field) -> str:
        if field.kind == "array":
            return "[]" if field.default == () else "None"
        if field.kind == "struct" and field.default == ():
            return f"{self.constant('C', field.struct)}()"
        return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)

    def value(self, field: Field, target: str, name: str) -> None:
        if field.kind in FIXED:
            self.run.append((FIXED[field.kind][0], target))
        elif field.kind == "struct":
            self.struct_value(field, target)
        else:
            is_string = field.kind == "string"
            self.length("h" if is_string else "i", field.kind == "records", STRING_BYTES_MAX + 1 if is_string else 0)
            nothing = "not n" if self.flexible else "n < 0"
            if self.nullable(field):
                self.emit(f"if {nothing}:")
                self.emit(f"    {target} = None")
                self.block("else:", lambda: self.body(field, target, name))
            else:
                self.fail(nothing, f"{name} is null")
                self.body(field, target, name)

    def length(self, fmt: str, two_bytes: bool = False, most: int = 0) -> None:
        """Leaves in n a length, or in flexible versions a length plus one, which may be bounded by `most`."""
        self.run.append(("B" if self.flexible else fmt, "n"))
        self.flush()
        if self.flexible:
            self.emit("if n > 127:")
            if two_bytes:
                self.emit("    b = buf[p]")
                self.emit("    if b < 128:")
                self.emit("        n = n & 127 | b << 7")
                self.emit("        p += 1")
                self.emit("    else:")
                self.emit("        n, p = rest(buf, p, n)")
            else:
                self.emit("    n, p = rest(buf, p, n)")
            if most:
                self.emit(f"    if n > {most}:")
                self.emit(f"        raise DecodeError('{self.title}: a string of %d bytes' % (n - 1))")

    def body(self, field: Field, target: str, name: str) -> None:
        if field.kind == "array":
            self.array(field, target, name)
            return
        self.emit("q = p + n - 1" if self.flexible else "q = p + n")
        read = {"string": "str(buf[p:q], 'utf-8')", "bytes": "bytes(buf[p:q])", "records": "view[p:q]"}
        self.emit(f"{target} = {read[field.kind]}")
        self.emit("p = q")

    def array(self, field: Field, target: str, name: str) -> None:
        if self.flexible:
            self.emit("n -= 1")
        element = field.of
        if element is not None and element.kind in FIXED:
            fmt, size = FIXED[element.kind]
            self.fail(f"{size} * n > end - p", f"more {name} than bytes")
            self.count()
            many = f"'>' + '{fmt}' * n" if fmt == "16s" else f"'>%d{fmt}' % n"
            self.emit(f"{target} = list(unpack_from({many}, buf, p)) if n else []")
            self.emit(f"p += {size} * n" if size > 1 else "p += n")
            return
        self.depth += 1
        array, item = f"a{self.depth}", f"o{self.depth}"
        if element is None:
            assert field.struct is not None
            size = max(1, min_size(field.struct, self.version, self.flexible))
        else:
            size = min_field_size(element, self.version, self.flexible)
        self.fail(f"{size} * n > end - p" if size > 1 else "n > end - p", f"more {name} than bytes")
        self.count()
        self.emit(f"{array} = {target} = []")

        def loop() -> None:
            if field.struct is not None:
                self.struct(field.struct, item)
            else:
                assert element is not None
                self.value(element, item, name)
            self.flush()
            self.emit(f"{array}.append({item})")

        self.block("for _ in range(n):", loop)
        self.depth -= 1

    def count(self) -> None:
        if self.is_bounded:
            self.emit("all_n += n")
            self.fail(f"all_n > {REQUEST_ELEMENTS_MAX}", f"more than {REQUEST_ELEMENTS_MAX} things in one request")

    def struct_value(self, field: Field, target: str) -> None:
        assert field.struct is not None
        inner = field.struct
        self.depth += 1
        item = f"o{self.depth}"

        def body() -> None:
            self.struct(inner, item)
            self.flush()
            self.emit(f"{target} = {item}")

        if self.nullable(field):
            self.run.append(("b", "n"))
            self.flush()
            self.emit("if n < 0:" if field.tag is None else "if n <= 0:")
            self.emit(f"    {target} = None")
            self.block("else:", body)
        else:
            body()
        self.depth -= 1

    def tags(self, cls: type[Struct], var: str) -> None:
        self.run.append(("B", "n"))
        self.flush()
        known = self.tagged(cls)
        if not known:
            self.emit("if n:")
            self.emit("    p = skip_tags(buf, p - 1)")
            return
        stop, tag = f"stop{self.depth}", f"tag{self.depth}"

        def one() -> None:
            self.emit(f"{tag}, p = uvarint(buf, p)")
            self.emit("n, p = uvarint(buf, p)")
            self.emit(f"{stop} = p + n")
            self.fail(f"{stop} > end", "a tagged field is longer than its frame")
            word = "if"
            for field in known:
                take = lambda f=field: self.value(f, f"{var}.{f.name}", f.name)  # noqa: E731
                self.block(f"{word} {tag} == {field.tag}:", take)
                word = "elif"
            self.emit("else:")
            self.emit(f"    p = {stop}")
            self.fail(f"p != {stop}", "a tagged field has another size than it says")

        def section() -> None:
            self.emit("if n > 127:")
            self.emit("    n, p = rest(buf, p, n)")
            self.fail("2 * n > end - p", "more tagged fields than bytes")
            self.block("for _ in range(n):", one)

        self.block("if n:", section)
