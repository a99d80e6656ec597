"""The code of docs/how-to/test-a-stream-app.md, run as it stands there."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

from tests.pages import names_of

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/test-a-stream-app.md"


def test_every_test_of_the_page_passes() -> None:
    tests = [each for name, each in names_of(PAGE).items() if name.startswith("test_")]
    assert len(tests) == 7
    for each in tests:
        result = each()
        if inspect.iscoroutine(result):
            asyncio.run(result)
