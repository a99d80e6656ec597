"""Every pitfall of the list is asked for by scenarios that exist, or says where else it is."""

from __future__ import annotations

import re
from pathlib import Path

from .catalogue import ALL
from .pitfalls import PITFALLS

ROOT = Path(__file__).resolve().parents[2]


def test_they_are_forty_and_each_is_somewhere() -> None:
    assert [pitfall.number for pitfall in PITFALLS] == list(range(1, 41))
    assert [pitfall.number for pitfall in PITFALLS if not pitfall.scenarios and not pitfall.elsewhere] == []


def test_the_scenarios_named_exist() -> None:
    labels = {scenario.label.partition("-")[0] for scenario in ALL}  # whatever the precondition
    assert {label for pitfall in PITFALLS for label in pitfall.scenarios} - labels == set()


def test_the_files_named_exist() -> None:
    files = [word for pitfall in PITFALLS for word in re.split("[ ;]+", pitfall.elsewhere) if word.endswith(".py")]
    assert files and [file for file in files if not (ROOT / file).exists()] == []


def test_the_tests_named_stand_in_the_files_named() -> None:
    named = re.findall(r"\b(test_\w+) of (\S+\.py)", " ".join(pitfall.elsewhere for pitfall in PITFALLS))
    assert named and [(test, file) for test, file in named if f"def {test}(" not in (ROOT / file).read_text()] == []
