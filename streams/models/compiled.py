"""Methods that are generated for each model class, so that they name its fields one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from decimal import Decimal
from typing import Any

COMPARISONS = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
MUTABLE = (list, dict, set)  # a default of these types is copied for each record


def init_method(
    fields: Sequence[str],
    defaults: Mapping[str, Any],
    conversions: Mapping[str, Callable[[Any], Any]],
    finish: Sequence[str],
) -> Callable[..., None]:
    """`__init__`: positional in the order of the fields, those without a default first; None is the default's value.

    conversions: what is done to a value first, by field; finish: methods that are called last.
    """
    required = [name for name in fields if name not in defaults]
    optional = [name for name in fields if name in defaults]
    names: dict[str, Any] = {"__unexpected": _unexpected, "__copy": copy}  # no field has such a name, nor `__self`
    lines = ["if __others: __unexpected(__self, __others)"]
    if conversions:  # such a class converts at each assignment, which has been done here
        lines.append("__values = __self.__dict__")
    for name in fields:
        value = name
        if name in conversions:
            names[f"__convert_{name}"] = conversions[name]
            value = f"__convert_{name}({name})"
            if name in defaults:
                value += f" if {name} is not None else {_default(name, defaults, names)}"
        elif name in defaults and defaults[name] is not None:
            value = f"{name} if {name} is not None else {_default(name, defaults, names)}"
        lines.append(f"__values[{name!r}] = {value}" if conversions else f"__self.{name} = {value}")
    lines += [f"__self.{method}()" for method in finish]
    arguments = ["__self", *required, *(f"{name}=None" for name in optional), "*", "__faust=None", "**__others"]
    return _compiled("__init__", arguments, lines, names)


def comparison(method: str, fields: Sequence[str]) -> Callable[[Any, Any], Any]:
    """One of COMPARISONS: by the fields in their order, of records of the same class."""
    lines = [
        "if other.__class__ is self.__class__:",
        f"    return {_fields_of('self', fields)} {COMPARISONS[method]} {_fields_of('other', fields)}",
        "return NotImplemented",
    ]
    return _compiled(method, ["self", "other"], lines, {})


def hash_method(fields: Sequence[str]) -> Callable[[Any], int]:
    return _compiled("__hash__", ["self"], [f"return hash({_fields_of('self', fields)})"], {})


def asdict_method(written: Mapping[str, str]) -> Callable[[Any], dict[str, Any]]:
    """written: names in JSON by field."""
    return _compiled("asdict", ["self"], [f"return self._prepare_dict({{{_items_of(written)}}})"], {})


def representation_method(written: Mapping[str, str], constant: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """constant: what is written behind the fields."""
    names = {f"_constant_{position}": value for position, value in enumerate(constant.values())}
    items = _items_of(written) + "".join(f"{key!r}: {name}, " for key, name in zip(constant, names, strict=True))
    return _compiled("to_representation", ["self"], [f"return {{{items}}}"], names)


def check_method(checks: Mapping[str, str]) -> Callable[[Any], bool]:
    """Whether all values are valid beyond doubt. checks: expressions of `value`, by field."""
    lines = []
    for name, check in checks.items():
        lines += [f"value = self.{name}", f"if not ({check}): return False"]
    return _compiled("_is_surely_valid", ["self"], [*lines, "return True"], {"datetime": datetime, "Decimal": Decimal})


def _items_of(written: Mapping[str, str]) -> str:
    return "".join(f"{output!r}: self.{name}, " for name, output in written.items())


def _default(name: str, defaults: Mapping[str, Any], names: dict[str, Any]) -> str:
    names[f"__default_{name}"] = defaults[name]
    return f"__copy(__default_{name})" if isinstance(defaults[name], MUTABLE) else f"__default_{name}"


def _fields_of(what: str, fields: Sequence[str]) -> str:
    return f"({''.join(f'{what}.{name}, ' for name in fields)})"


def _unexpected(record: Any, others: Mapping[str, Any]) -> None:
    raise TypeError(f"{type(record).__name__} has no field {', '.join(sorted(others))}")


def _compiled(name: str, arguments: Sequence[str], lines: Sequence[str], names: dict[str, Any]) -> Any:
    source = f"def {name}({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
    space: dict[str, Any] = {}
    exec(compile(source, f"<{name} of a model>", "exec"), names, space)
    space[name].__module__ = __name__
    return space[name]
