"""docs/tutorial/orders.md builds examples/orders from nothing, and the example's tests pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "orders"
PAGE = ROOT / "docs" / "tutorial" / "orders.md"


@pytest.mark.parametrize("name", ["shop.py", "test_shop.py", "topology.yaml"])
def test_the_blocks_of_the_tutorial_are_the_files(name: str) -> None:
    """Each block begins with a comment that names its file; together, one after the other, they are the file."""
    blocks = re.findall(rf"```(?:python|yaml)\n# {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "".join(blocks).split() == (EXAMPLE / name).read_text().split()


def test_its_tests_pass() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(EXAMPLE),
        "test_shop.py",
    ]
    done = subprocess.run(
        command, cwd=EXAMPLE, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=60
    )
    assert "3 passed" in done.stdout, done.stdout
