"""mypy and pyright know the fields of records, and the arguments of their classes, with no plugin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.streams.checkers import CHECKERS, Problems, check

RIGHT = """
from datetime import datetime
from typing import Any, Iterable, Optional, assert_type

from isthmus.streams.api.schema import Schema
from isthmus.streams.models import FieldDescriptor, IntegerField, Record, StringField, ValidationError


class Choice(FieldDescriptor[str]):
    def __init__(self, choices: list[str], **kwargs: Any) -> None:
        self.choices = choices
        super().__init__(choices=choices, **kwargs)

    def validate(self, value: str) -> Iterable[ValidationError]:
        yield self.validation_error("no")


class Order(Record, serializer="json", coerce=True):
    account_id: str
    amount: float
    at: datetime
    side: str = Choice(["BUY"])
    name: str = StringField(max_length=3, default="x")
    note: Optional[str] = None


order = Order("a", 1.0, datetime(2020, 1, 1), side="BUY")
assert_type(order.account_id, str)
assert_type(order.note, Optional[str])
assert_type(order.name, str)
assert_type(Order.loads(b""), Order)
assert_type(order.derive(amount=2.0), Order)
assert_type(order < order, bool)
assert_type(order.asdict(), dict[str, Any])
assert_type(order.dumps(serializer="json"), bytes)
Schema(value_type=Order, key_type=str)
"""

WRONG = {  # a line that a checker must not take, and what mypy and pyright say
    'Order("a")': ("Missing positional argument", 'Arguments missing for parameters "amount", "at"'),
    'Order(1, 1.0, datetime(2020, 1, 1), "BUY")': ("has incompatible type", "cannot be assigned to parameter"),
    'Order("a", 1.0, datetime(2020, 1, 1), "BUY", colour=1)': (
        "Unexpected keyword argument",
        'No parameter named "colour"',
    ),
    "order.colour": ("has no attribute", 'Cannot access attribute "colour"'),
    "StringField(max_length='x')": ("has incompatible type", "cannot be assigned to parameter"),
}


@pytest.mark.parametrize("by", CHECKERS)
def test_type_checkers_follow_records(tmp_path: Path, by: Callable[[Path], Problems]) -> None:
    check(by, tmp_path, RIGHT, WRONG)
