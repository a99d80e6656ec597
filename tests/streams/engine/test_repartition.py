"""What goes through a topic for another key comes back equal and of the same type."""

from typing import Any

import pytest

from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.engine.operators.windows import WindowResult
from isthmus.streams.engine.repartition import SERIALIZATION


@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        b"bytes",
        None,
        [1, 2],
        {"a": (1, None)},
        Change({"n": 1}, None),
        WindowResult("k", 0, 10, [1, 2], 3),
        WindowResult(("a", 1), 0, 10, None, 0, ("nyc",)),
    ],
)
def test_values_come_back(value: Any) -> None:
    coder = SERIALIZATION.value
    found = coder.decode(coder.encode(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("key", ["text", b"bytes", 1, ("a", 1), None])
def test_keys_come_back(key: Any) -> None:
    coder = SERIALIZATION.key
    found = coder.decode(coder.encode(key))
    assert found == key and type(found) is type(key)
