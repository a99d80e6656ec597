"""The compiled modules' C declarations, made from the modules themselves. Imports nothing of the project.

A compiled module (setup.py MODULES) is one Python file with one declaration of each thing. The compiler wants the
same in a `.pxd` file, which other modules' C code reads, too: setup.py writes it by `write` before it compiles.

* A field is an annotation in its class: `size: cython.Py_ssize_t`, `parts: list[bytes]`, `log: LogTail | None`. Its C
  type is that of the annotation; what names no C type, builtin container or compiled class is an object. Python code
  does not see it, unless it is marked `Readonly[...]` or `Public[...]`.
* A field `rows: Annotated[list[cython.int], ROWS]` is a C array of so many, a list in the plain form; `ROWS = 8` is the
  module's own. A field `__weakref__: object` allows weak references.
* A C function is decorated by `cython.cfunc` or `cython.ccall`. The containers of its signature are bare (`list`), as
  the compiler wants them. One outside a class is declared only if another module uses it.
* A C constant is an annotation with a value: `_OVERHEAD: cython.longlong = 12`. One of a module that is not compiled is
  a C constant in each compiled module that imports it, too.
* A class of another compiled module is imported as in Python. A C function is imported under `if cython.compiled:` from
  `cython.cimports`, and under `else:` from where the plain form has it.
* C code is the string `_C_CODE`; each function in it that begins with `static inline` can be called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

T = TypeVar("T")
Readonly = Annotated[T, "Python code reads the field"]
Public = Annotated[T, "Python code reads and sets the field"]

_FIRST_LINE = "# Made by setup.py from {}. Not to be edited.\n"
_VISIBILITY = {"Readonly": "readonly ", "Public": "public "}
_WORDS = {
    "bint": "bint",
    "char": "char",
    "double": "double",
    "int": "int",
    "longlong": "long long",
    "Py_buffer": "Py_buffer",
    "Py_ssize_t": "Py_ssize_t",
    "schar": "signed char",
    "short": "short",
    "uchar": "unsigned char",
    "uint": "unsigned int",
    "ulonglong": "unsigned long long",
    "void": "void",
}
_BUILTINS = {"bytearray", "bytes", "dict", "list", "set", "str", "tuple"}
_C_FUNCTION = {"cfunc": "cdef", "ccall": "cpdef"}
_CIMPORTS = "cython.cimports."


class DeclarationError(Exception):
    """An annotation that has no C declaration; names the file and the line."""


@dataclass
class _Module:
    """What a module's file says that other modules' declarations need."""

    name: str  # dotted, from the package on
    path: Path
    tree: ast.Module
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    lent: set[str] = field(default_factory=set)  # functions that other modules use


def write(source: Path, names: Sequence[str]) -> list[Path]:
    """Writes the `.pxd` of each module in `names` ("isthmus/_clock") under `source`; gives those that have changed.

    Raises DeclarationError.
    """
    changed = []
    for path, text in declarations(source, names).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def declarations(source: Path, names: Sequence[str]) -> dict[Path, str]:
    """The text of each module's `.pxd`, by its path. Raises DeclarationError."""
    modules = {module.name: module for module in (_read(source, name) for name in names)}
    for module in modules.values():
        for line, target, name in _cimports(module):
            if target not in modules:
                continue
            if name not in modules[target].functions:
                raise DeclarationError(f"{module.path}:{line}: {target} has no C function {name}")
            modules[target].lent.add(name)
    return {module.path.with_suffix(".pxd"): _Writer(source, module, modules).text() for module in modules.values()}


def _read(source: Path, name: str) -> _Module:
    path = source / f"{name}.py"
    module = _Module(name.replace("/", "."), path, ast.parse(path.read_text(), str(path)))
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and "cclass" in _decorators(node):
            module.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef) and _decorators(node) & _C_FUNCTION.keys():
            module.functions[node.name] = node
    return module


def _cimports(module: _Module) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of what a module takes of others' C code."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_CIMPORTS):
            for each in node.names:
                yield node.lineno, node.module.removeprefix(_CIMPORTS), each.name


def _decorators(node: ast.ClassDef | ast.FunctionDef) -> set[str]:
    return {each.attr for each in node.decorator_list if isinstance(each, ast.Attribute)}


class _Writer:
    """Makes the text of one module's `.pxd`."""

    def __init__(self, source: Path, module: _Module, modules: dict[str, _Module]) -> None:
        self._source = source
        self._module = module
        self._modules = modules
        self._imported = {
            name: target for target, name in self._imports() if target in modules and name in modules[target].classes
        }
        self._cimports = {f"from {target} cimport {name}\n" for name, target in self._imported.items()}

    def text(self) -> str:
        parts = [self._c_code(), self._constants()]
        parts += [self._class(node) for node in self._module.classes.values()]
        lent = [self._module.functions[name] for name in sorted(self._module.lent)]
        parts.append("".join(f"{self._function(node)}\n" for node in lent))
        first = _FIRST_LINE.format(self._module.path.name)
        return "\n".join(part for part in (first, "".join(sorted(self._cimports)), *parts) if part)

    def _imports(self) -> Iterator[tuple[str, str]]:
        """(module, name) of what the module takes of others as Python does."""
        package = self._module.name.split(".")[:-1]
        for node in ast.walk(self._module.tree):
            if isinstance(node, ast.ImportFrom):
                above = package[: len(package) + 1 - node.level] if node.level else []
                target = ".".join([*above, node.module or ""])
                yield from ((target, each.name) for each in node.names)

    def _c_code(self) -> str:
        for node in self._module.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_C_CODE":
                code = ast.literal_eval(node.value)
                found = re.findall(r"^static inline (.+?\))\s*\{", code, re.MULTILINE | re.DOTALL)
                if "\\" in code or not found:
                    self._refuse(node, "C code without a backslash, and with a function `static inline`, is needed")
                lines = [" ".join(each.split()).replace("(void)", "()") + " noexcept nogil" for each in found]
                indented = "".join(f"    {line}\n" if line else "\n" for line in code.strip().splitlines())
                return f'cdef extern from *:\n    """\n{indented}    """\n' + "".join(f"    {each}\n" for each in lines)
        return ""

    def _constants(self) -> str:
        lines = [f"cdef {type} {name}\n" for name, type in self._constants_of(self._module.tree)]
        imported: dict[str, set[str]] = {}
        for target, name in self._imports():
            imported.setdefault(target, set()).add(name)
        for target, names in imported.items():
            path = self._source / f"{target.replace('.', '/')}.py"
            if target not in self._modules and path.exists():
                tree = ast.parse(path.read_text(), str(path))
                lines += [f"cdef {type} {name}\n" for name, type in self._constants_of(tree) if name in names]
        return "".join(lines)

    def _constants_of(self, tree: ast.Module) -> Iterator[tuple[str, str]]:
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if ast.unparse(node.annotation).startswith("cython."):
                    yield node.target.id, self._type(node.annotation)

    def _class(self, node: ast.ClassDef) -> str:
        bases = [ast.unparse(base) for base in node.bases]
        for base in bases:
            if self._declared(base) == "object":
                self._refuse(node, f"{base} is no compiled class")
        lines = [f"cdef class {node.name}{f'({bases[0]})' if bases else ''}:\n"]
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                lines.append(f"    cdef {self._field(each)}\n")
            elif isinstance(each, ast.FunctionDef) and _decorators(each) & _C_FUNCTION.keys():
                lines.append(f"    {self._function(each)}\n")
        return "".join(lines if len(lines) > 1 else [*lines, "    pass\n"])

    def _field(self, node: ast.AnnAssign) -> str:
        name = ast.unparse(node.target)
        match node.annotation:
            case ast.Subscript(value=ast.Name(id=mark), slice=inner) if mark in _VISIBILITY:
                return f"{_VISIBILITY[mark]}{self._type(inner)} {name}"
            case ast.Subscript(
                value=ast.Name(id="Annotated"),
                slice=ast.Tuple(elts=[ast.Subscript(value=ast.Name(id="list"), slice=each), length]),
            ):
                if not isinstance(each, ast.Attribute):
                    self._refuse(node, f"an array of {ast.unparse(each)}, which is no C type")
                return f"{self._type(each)} {name}[{self._length(length)}]"
        return f"{self._type(node.annotation)} {name}"

    def _length(self, length: ast.expr) -> int:
        """The integer that the module gives to a name."""
        found: dict[str, int] = {}
        for node in self._module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(number))):
                    found[name] = number
        if ast.unparse(length) not in found:
            self._refuse(length, f"{ast.unparse(length)} is no name of an integer")
        return found[ast.unparse(length)]

    def _function(self, node: ast.FunctionDef) -> str:
        [kind] = [word for name, word in _C_FUNCTION.items() if name in _decorators(node)]
        if node.args.defaults or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
            self._refuse(node, f"{node.name} is a C function: its arguments are plain and have no defaults")
        arguments = [f"{self._in_signature(each.annotation)}{each.arg}" for each in node.args.args]
        returned = self._in_signature(node.returns)
        return f"{kind} {returned}{node.name}({', '.join(arguments)}){self._exception(node)}"

    def _in_signature(self, annotation: ast.expr | None) -> str:
        """The type and a space; nothing for an object."""
        if annotation is None:
            return ""
        declared = self._type(annotation)
        if declared == "object":
            return ""
        for each in ast.walk(annotation):
            if isinstance(each, ast.Subscript) and declared in _BUILTINS:
                self._refuse(annotation, f"{ast.unparse(each)} in the signature of a C function: it is bare there")
        return f"{declared} "

    def _exception(self, node: ast.FunctionDef) -> str:
        for each in node.decorator_list:
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "cython.exceptval":
                if each.args:
                    return f" except? {ast.unparse(each.args[0])}"
                return " noexcept"
        return ""

    def _type(self, annotation: ast.expr) -> str:
        """The C type that an annotation names."""
        match annotation:
            case ast.Attribute(value=ast.Name(id="cython"), attr=name):
                return self._c_type(annotation, name)
            case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
                return self._type(left)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                types = [self._type(part) for part in parts]
                is_c = all(each not in ("object", *_BUILTINS) for each in types)
                return f"({', '.join(types)})" if is_c else "tuple"
            case ast.Subscript(value=value):
                return self._type(value)
            case ast.Name(id=name):
                if name == "float":
                    self._refuse(annotation, "float is an object here and a double to the compiler: cython.double")
                return self._declared(name)
        return "object"

    def _declared(self, name: str) -> str:
        if name == "array":
            self._cimports.add("from cpython.array cimport array\n")
            return name
        return name if name in {*_BUILTINS, *self._module.classes, *self._imported} else "object"

    def _c_type(self, node: ast.expr, name: str) -> str:
        for prefix, form in (("p_", "{}*"), ("const_", "const {}")):
            if name.startswith(prefix):
                return form.format(self._c_type(node, name.removeprefix(prefix)))
        if name not in _WORDS:
            self._refuse(node, f"cython.{name} is none of {', '.join(sorted(_WORDS))}")
        return _WORDS[name]

    def _refuse(self, node: ast.stmt | ast.expr, what: str) -> None:
        raise DeclarationError(f"{self._module.path}:{node.lineno}: {what}")
