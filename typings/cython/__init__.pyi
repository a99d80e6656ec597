"""What mypy knows of `cython`, as far as the compiled modules use it: the types of their plain form.

mypy takes `cython.compiled` for False (pyproject.toml), so that it reads that form alone.
"""

from builtins import int as int
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias, TypeVar

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

compiled: Final[bool]
nogil: AbstractContextManager[None]
NULL: Any

bint = bool
double = float
longlong = int
Py_ssize_t = int
schar = int
short = int
uchar = int
uint = int
ulonglong = int
void: TypeAlias = None
Py_buffer: TypeAlias = Any

# Pointers: bytes, a memoryview, a bytearray or an array in the plain form.
p_char: TypeAlias = Any
p_const_uchar: TypeAlias = Any
p_int: TypeAlias = Any
p_longlong: TypeAlias = Any
p_uchar: TypeAlias = Any
p_ulonglong: TypeAlias = Any

def cfunc(function: _F) -> _F: ...
def ccall(function: _F) -> _F: ...
def inline(function: _F) -> _F: ...
def exceptval(value: Any = None, *, check: bool = True) -> Callable[[_F], _F]: ...
def cclass(of: _C) -> _C: ...
def final(of: _C) -> _C: ...
def no_gc(of: _C) -> _C: ...
def cast(to: type[_T], value: Any) -> _T: ...
def address(of: Any) -> Any: ...
