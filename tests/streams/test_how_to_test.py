"""The code of docs/how-to/test-a-stream-app.md, run as it stands there."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/test-a-stream-app.md"


def test_every_test_of_the_page_passes() -> None:
    found: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), found)
    tests = [each for name, each in found.items() if name.startswith("test_")]
    assert len(tests) == 7
    for each in tests:
        result = each()
        if inspect.iscoroutine(result):
            asyncio.run(result)
