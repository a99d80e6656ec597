"""Damaged requests and batches are refused or taken: without a hang, another error, or memory that grows.

Seconds here, minutes by `make soak`; the bounds are those of fuzz.py. What a broker makes of damaged frames, and if
others notice, is in integration_tests/hostile/test_frames.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.protocol.messages import APIS

ROOT = Path(__file__).resolve().parents[2]
SECONDS, SOAK_SECONDS = 3, 150
KINDS = ("requests", "records")
OVER_S = 120  # after which the watchdog itself has failed


def fuzz(kind: str, seconds: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.protocol.fuzz", kind, "--seconds", str(seconds), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + OVER_S)


def told(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout)
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_are_refused_or_taken(kind: str) -> None:
    told(fuzz(kind, SECONDS))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_bytes_for_minutes(kind: str) -> None:
    said = told(fuzz(kind, SOAK_SECONDS))
    versions = sum(api.max_version - api.min_version + 1 for api in APIS.values())
    assert kind != "requests" or int(said.split(" kinds")[0].split()[-1]) >= versions


@pytest.mark.parametrize(
    ("control", "says"),
    [
        ("believes-counts", "MemoryError"),
        ("fails-otherwise", "IndexError"),
        ("keeps-all", "MiB more"),
        ("never-ends", "Timeout"),
    ],
)
def test_control_a_wrong_decoder_is_seen(control: str, says: str) -> None:
    done = fuzz("requests", SECONDS, "--control", control, "--hang-seconds", "1")
    assert done.returncode != 0
    assert says in done.stderr, done.stderr[-3000:]
