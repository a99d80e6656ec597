"""`python -m integration_tests.histories` for tests: what it printed of each history."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import ROOT, die_with_parent
from integration_tests.histories import network


def histories(
    folder: Path, peer: str, seed: int, count: int, seconds: float, workload: str = "plain"
) -> list[dict[str, Any]]:
    """None follows after one that is unfinished. Skips the test where there can be no namespaces."""
    if why := network.why_not():
        pytest.skip(why)
    options = {
        "--peer": peer,
        "--workload": workload,
        "--seed": seed,
        "--count": count,
        "--seconds": seconds,
        "--keep": folder,
    }
    arguments = [str(part) for option in options.items() for part in option]
    command = [sys.executable, "-m", "integration_tests.histories", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, preexec_fn=die_with_parent)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found and (done.returncode or len(found) == count), done.stderr[-3000:]
    return found
