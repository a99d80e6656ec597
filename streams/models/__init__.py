"""Models: classes whose fields describe the keys and values of records, with Faust's names.

* what a user writes: `record.py` (`Record`), `fields.py` (`StringField` and its like);
* a field's type as conversions from and to JSON: `types.py`; a class's options and the classes by namespace:
  `options.py`; what is generated for each class: `compiled.py`; the short way between JSON and instances: `wire.py`.
"""

from typing import TYPE_CHECKING

from ..api import absent
from .fields import (
    BooleanField,
    BytesField,
    DatetimeField,
    DecimalField,
    FieldDescriptor,
    FloatField,
    IntegerField,
    StringField,
    ValidationError,
)
from .options import ModelOptions
from .record import Model, Record

__all__ = [
    "BooleanField",
    "BytesField",
    "DatetimeField",
    "DecimalField",
    "FieldDescriptor",
    "FloatField",
    "IntegerField",
    "Model",
    "ModelOptions",
    "Record",
    "StringField",
    "ValidationError",
]

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("models", __all__)
