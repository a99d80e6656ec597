"""Where the tests' folders lie: beneath a name that holds what a test may look for in a path, so that one which looks
in the part that is the run's own (`pytest-131` has `t-1` in it) is red at once, and not at its hundredth run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

NAME = "t-0 t-1 t-2 u-0 .log .index .snapshot cleaned swap deleted __consumer_offsets-0"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # has its folder from the process that started it
        return
    root = Path(tempfile.gettempdir(), f"isthmus-tests-{os.getuid()}", NAME)
    root.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(root))
