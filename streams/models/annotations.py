"""The fields that a class annotates: names, types and defaults, with those of its bases.

An annotation may name what is defined later. Whether it is optional is known at once; the type itself is looked up when
the first record is made.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, get_origin, get_type_hints

from .types import bare, is_optional

_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Later:
    """A type that is not defined yet. annotation: as it is written; owner: the class that has it."""

    annotation: Any
    owner: type
    is_optional: bool

    def __repr__(self) -> str:
        return str(self.annotation)


class _Unknown:
    """Stands for a name that is not defined yet; takes part in `X | None` and `X[Y]`."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class _Names(dict[str, Any]):
    """The names of a module and a class, where any other is unknown."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown)


def annotated(cls: type, stop: type) -> dict[str, Any]:
    """Types by field, bases first; `Later` for one that is not defined yet. Without class variables."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is not stop and issubclass(base, stop):
            for name, tp in inspect.get_annotations(base).items():
                resolved = _resolved(tp, base, cls)
                if resolved is not ClassVar and get_origin(resolved) is not ClassVar:
                    found[name] = resolved
    return found


def own_names(cls: type) -> list[str]:
    """The fields that the class itself annotates."""
    return list(inspect.get_annotations(cls))


def default_of(cls: type, stop: type, name: str, absent: Any) -> Any:
    """What the class, or the nearest base, assigns to a field."""
    for base in cls.__mro__:
        if base is stop:
            break
        if (value := vars(base).get(name, _ABSENT)) is not _ABSENT:
            return value
    return absent


def defined(later: Later) -> Any:
    """The type. Raises NameError if it is still not defined."""
    return _looked_up(later.annotation, later.owner, later.owner)


def _resolved(tp: Any, base: type, cls: type) -> Any:
    try:
        return _looked_up(tp, base, cls)
    except NameError:
        guess = tp
        if isinstance(tp, str):
            guess = eval(tp, {}, _Names({**_module_of(base), **_local_names(base, cls)}))
        if guess is ClassVar or get_origin(guess) is ClassVar:
            return ClassVar
        return Later(tp, base, is_optional(bare(guess)))


def _looked_up(tp: Any, base: type, cls: type) -> Any:
    asked = type("Asked", (), {"__annotations__": {"field": tp}})
    return get_type_hints(asked, _module_of(base), _local_names(base, cls), include_extras=True)["field"]


def _module_of(base: type) -> dict[str, Any]:
    return vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}


def _local_names(base: type, cls: type) -> dict[str, Any]:
    return {base.__name__: base, cls.__name__: cls}
