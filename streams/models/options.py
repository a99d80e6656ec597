"""Options of a model class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..engine.codecs import CodecArg
from .fields import FieldDescriptor

INHERITED = (
    "serializer include_metadata isodates decimals allow_blessed_key polymorphic_fields coerce validation date_parser"
).split()


@dataclass
class ModelOptions:
    """Options of a class, and what is known about its fields.

    serializer: the codec of this class; without one, the topic's.
    namespace: the name that is written with each record, by default the class's own with its module.
    include_metadata: whether `__faust` is written.
    isodates, decimals: fields of type datetime (Decimal) are made of the text that JSON has.
    coerce: values are converted to the type of their field, at each assignment, too.
    coercions: functions from JSON to a type, by type.
    validation: values are checked when a record is made; implies coerce.
    allow_blessed_key: the class is taken wherever a record's `__faust` names it.
    polymorphic_fields: so is it, and the fields of the class are loaded as the classes that their JSON names.
    date_parser: from text to datetime; ISO 8601 by default.
    """

    serializer: CodecArg = None
    namespace: str = ""
    include_metadata: bool = True
    polymorphic_fields: bool = False
    allow_blessed_key: bool = False
    isodates: bool = False
    decimals: bool = False
    validation: bool = False
    coerce: bool = False
    coercions: dict[Any, Callable[[Any], Any]] = field(default_factory=dict)
    date_parser: Callable[[Any], datetime] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)  # types by name, in the order of the class
    fieldset: frozenset[str] = frozenset()
    fieldpos: Mapping[int, str] = field(default_factory=dict)
    optionalset: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    descriptors: Mapping[str, FieldDescriptor[Any]] = field(default_factory=dict)

    def inherited(self, given: Mapping[str, Any]) -> ModelOptions:
        """Options of a subclass; None in `given`: as its base."""
        named = {name: getattr(self, name) for name in INHERITED}
        named.update({name: value for name, value in given.items() if value is not None and name != "coercions"})
        options = ModelOptions(**named, coercions={**self.coercions, **(given.get("coercions") or {})})
        options.coerce = options.coerce or options.validation
        return options
