"""The C declarations that setup.py makes of the compiled modules, and that the modules which run are built of them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from isthmus.compiled import DeclarationError, declarations, write
from isthmus.protocol.records import COMPILED

ROOT = Path(__file__).resolve().parents[1]
MODULES = [f"isthmus/{name}" for name in re.findall(r'^    "((?:\w+/)*_\w+)",$', (ROOT / "setup.py").read_text(), re.M)]

SHAPES = '''
from __future__ import annotations
from array import array
import cython
from .sizes import ROOM, NAME
_HALF: cython.Py_ssize_t = ROOM // 2
KEPT = 5
PLAIN: int = 3
_C_CODE = """
#include <time.h>

static inline long long
now_ms(void)
{
    return 0;
}
"""
@cython.final
@cython.cclass
class Shape:
    size: Readonly[cython.Py_ssize_t]
    parts: Public[list[bytes]]
    b: cython.p_const_uchar
    numbers: array[int] | None
    last: Annotated[list[cython.longlong], KEPT]
    __weakref__: object
    callback: Callable[[], None]
    @cython.cfunc
    @cython.exceptval(check=False)
    def pair(self, at: cython.longlong) -> tuple[cython.longlong, cython.int]: ...
    @cython.ccall
    @cython.exceptval(-1)
    def add(self, part: bytes, what, other: Shape | None) -> cython.bint: ...
    def plain(self) -> int: ...
@cython.cfunc
def lent(b: cython.p_uchar, rows: list) -> Shape: ...
@cython.cfunc
def kept(b: cython.p_uchar): ...
'''
CIRCLES = """
import cython
from ._shapes import Shape
from .plain import Other
if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.rooms._shapes import lent
else:
    from ._shapes import lent
@cython.cclass
class Circle(Shape):
    other: Other
    shape: Shape
"""
SHAPES_PXD = '''# Made by setup.py from _shapes.py. Not to be edited.

from cpython.array cimport array

cdef extern from *:
    """
    #include <time.h>

    static inline long long
    now_ms(void)
    {
        return 0;
    }
    """
    long long now_ms() noexcept nogil

cdef Py_ssize_t _HALF
cdef int ROOM

cdef class Shape:
    cdef readonly Py_ssize_t size
    cdef public list parts
    cdef const unsigned char* b
    cdef array numbers
    cdef long long last[5]
    cdef object __weakref__
    cdef object callback
    cdef (long long, int) pair(self, long long at) noexcept
    cpdef bint add(self, bytes part, what, Shape other) except? -1

cdef Shape lent(unsigned char* b, list rows)
'''
CIRCLES_PXD = """# Made by setup.py from _circles.py. Not to be edited.

from rooms._shapes cimport Shape

cdef class Circle(Shape):
    cdef object other
    cdef Shape shape
"""


def made(folder: Path, shapes: str = SHAPES, circles: str = CIRCLES) -> tuple[str, str]:
    room = folder / "rooms"
    room.mkdir(exist_ok=True)
    (room / "sizes.py").write_text('ROOM: cython.int = 8\nOTHER: cython.int = 9\nNAME = "x"\n')
    (room / "_shapes.py").write_text(shapes)
    (room / "_circles.py").write_text(circles)
    found = declarations(folder, ["rooms/_shapes", "rooms/_circles"])
    return found[room / "_shapes.pxd"], found[room / "_circles.pxd"]


def test_each_thing_is_declared_as_its_module_has_it(tmp_path: Path) -> None:
    assert made(tmp_path) == (SHAPES_PXD, CIRCLES_PXD)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("rows: list)", "rows: list[int])", r"_shapes.py:\d+: list\[int\] in the signature of a C function"),
        ("def lent(", "def other(", r"_circles.py:7: rooms._shapes has no C function lent"),
        ("class Circle(Shape)", "class Circle(Other)", "Other is no compiled class"),
        ("size: Readonly[cython.Py_ssize_t]", "size: cython.size_t", "cython.size_t is none of"),
        ("list[cython.longlong], KEPT", "list[cython.longlong], LOST", r"_shapes.py:\d+: LOST is no name"),
        ("list[cython.longlong], KEPT", "list[int], KEPT", "an array of int, which is no C type"),
        ("size: Readonly[cython.Py_ssize_t]", "size: float", "float is an object here and a double to the compiler"),
        ("at: cython.longlong)", "at: cython.longlong = 0)", "its arguments are plain and have no defaults"),
        ("static inline", "static", "a function `static inline`, is needed"),
    ],
)
def test_what_cannot_be_declared_is_refused_with_its_line(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=why):
        made(tmp_path, SHAPES.replace(old, new), CIRCLES.replace(old, new))


def test_only_what_has_changed_is_written(tmp_path: Path) -> None:
    made(tmp_path)
    names = ["rooms/_shapes", "rooms/_circles"]
    shapes, circles = (tmp_path / f"{name}.pxd" for name in names)
    assert write(tmp_path, names) == [shapes, circles]
    assert write(tmp_path, names) == []
    shapes.write_text(SHAPES_PXD.replace("Py_ssize_t size", "int size"))  # a file that does not agree any more
    assert write(tmp_path, names) == [shapes]
    assert shapes.read_text() == SHAPES_PXD


def disagreements(texts: dict[Path, str]) -> list[str]:
    """Fields that Python code can see, or set, in a loaded compiled class, where its declaration says other."""
    found = []
    for path, text in texts.items():
        module = import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
        if str(module.__file__).endswith(".py"):
            continue
        for kind, body in re.findall(r"^cdef class (\w+).*:\n((?:    .*\n)+)", text, re.MULTILINE):
            of = getattr(module, kind)
            for how, field in re.findall(r"^    cdef (readonly |public |)[^(\n]* (\w+)[][\d]*$", body, re.MULTILINE):
                if how != seen(of, field):
                    found.append(f"{kind}.{field}")
    return found


def seen(of: type, field: str) -> str:
    """What Python code may do with a field, as a declaration says it."""
    if field not in of.__dict__:
        return ""
    if hasattr(of, "__del__"):  # which expects an object that was made whole
        of = type(of.__name__, (of,), {"__del__": lambda self: None})
    try:
        setattr(of.__new__(of), field, object())
    except AttributeError:
        return "readonly "
    except TypeError:
        pass  # it takes an integer, or bytes
    return "public "


def test_the_modules_that_run_are_built_of_these_declarations() -> None:
    texts = declarations(ROOT / "src", MODULES)
    assert len(texts) == len(MODULES) > 15
    assert disagreements(texts) == []


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("cdef readonly Py_ssize_t slots", "cdef Py_ssize_t slots", "OffsetMap.slots"),
        ("cdef readonly Py_ssize_t slots", "cdef public Py_ssize_t slots", "OffsetMap.slots"),
        ("cdef public long long latest", "cdef readonly long long latest", "OffsetMap.latest_offset"),
        ("cdef array _table", "cdef readonly array _table", "OffsetMap._table"),
        ("cdef long long _timestamps[5]", "cdef public long long _timestamps[5]", "ProducerEntry._timestamps"),
        ("cdef public bint is_kept", "cdef readonly bint is_kept", "DataFile.is_kept"),
    ],
)
def test_control_a_field_that_was_built_otherwise_is_seen(old: str, new: str, field: str) -> None:
    texts = declarations(ROOT / "src", MODULES)
    changed = {path: text.replace(old, new) for path, text in texts.items()}
    assert disagreements(changed) == ([field] if COMPILED else [])
