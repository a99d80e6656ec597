"""What is done with a record that has failed."""

import pytest

from isthmus.streams.engine.failures import SKIP, decided
from isthmus.streams.errors import AppError


def test_a_handler_must_say_a_policy() -> None:
    assert decided(lambda topic, partition, offset, error: SKIP, "in", 0, 7, ValueError()) == SKIP
    with pytest.raises(AppError, match=r"returned 'ignore', but must return one of fail, stop, skip, dead_letter"):
        decided(lambda topic, partition, offset, error: "ignore", "in", 0, 7, ValueError())
