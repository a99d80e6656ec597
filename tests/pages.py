"""Pages of the documentation whose code is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def names_of(page: Path) -> dict[str, Any]:
    """What the Python of a page defines, all its blocks in their order; without this module's `__future__`."""
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec", dont_inherit=True), found)
    return found
