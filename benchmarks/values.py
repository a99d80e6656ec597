"""What a type costs: `python -m benchmarks.values` prints values decoded and encoded in a second of CPU, by type.

Values are decoded a column at a time and encoded one by one, as topics are; the ratio is to orjson and plain dicts, on
the same bytes. What is encoded is kept, as until it is sent, so orjson's results are copied out of their large buffers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import orjson
import pydantic

from isthmus.streams.engine.serialization import Serializers
from isthmus.streams.models import IntegerField, Record

COLUMN = 500  # values, as many as a fetch may bring
ROUNDS = 200
REPEATED = 5  # the best counts


class Faust(Record):
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None = None


class Bare(Record, include_metadata=False):
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None = None


class Coerced(Bare, coerce=True):
    pass


class Valid(Bare, validation=True):
    quantity: int = IntegerField(min_value=0)


@dataclass
class Data:
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None = None


class Typed(TypedDict):
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None


class Struct(msgspec.Struct):
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None = None


class Pydantic(pydantic.BaseModel):
    account: str
    amount: float
    currency: str
    quantity: int
    note: str | None = None


TYPES: dict[str, Any] = {
    "no type (dict)": None,
    "Record": Faust,
    "Record, include_metadata=False": Bare,
    "Record, coerce=True": Coerced,
    "Record, validation=True": Valid,
    "TypedDict": Typed,
    "dataclass": Data,
    "msgspec.Struct": Struct,
    "pydantic": Pydantic,
}


def a_second(work: Callable[[], Any]) -> float:
    """Values a CPU-second, of work on one column."""
    best = float("inf")
    for _ in range(REPEATED):
        began = time.process_time()
        for _ in range(ROUNDS):
            work()
        best = min(best, time.process_time() - began)
    return COLUMN * ROUNDS / best


def measure(type_: Any) -> tuple[float, float, float, float]:
    """Decoded and encoded, and plain dicts decoded and encoded by orjson."""
    coder = Serializers().value_coder(type_)
    values = [
        (type_ or dict)(account=f"account-{n}", amount=n + 0.5, currency="EUR", quantity=n, note=None)
        for n in range(COLUMN)
    ]
    column = [coder.encode(value) or b"" for value in values]
    dicts = [orjson.loads(data) for data in column]
    return (
        a_second(lambda: coder.decode_column(column)),
        a_second(lambda: [coder.encode(value) for value in values]),
        a_second(lambda: [orjson.loads(data) for data in column]),
        a_second(lambda: [orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)[:-1] for value in dicts]),
    )


def main() -> None:
    print(f"{'':32}{'decoded':>12}{'to orjson':>11}{'encoded':>12}{'to orjson':>11}")
    for name, type_ in TYPES.items():
        decoded, encoded, plain_decoded, plain_encoded = measure(type_)
        print(
            f"{name:32}{decoded:12,.0f}{decoded / plain_decoded:10.2f}x{encoded:12,.0f}{encoded / plain_encoded:10.2f}x"
        )


if __name__ == "__main__":
    main()
