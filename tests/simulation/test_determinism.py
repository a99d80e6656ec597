"""One seed, one history: whatever the process, its hash seed and what ran in it before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .batch import run_one
from .scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]


def digest_in_a_new_process(name: str, seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tests.simulation", "--scenario", name, "--seed", str(seed), "--digest"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_with_different_hash_seeds_give_one_hash(name: str) -> None:
    first = digest_in_a_new_process(name, 7, "1")
    assert first == digest_in_a_new_process(name, 7, "4242") == run_one(name, 7).digest
