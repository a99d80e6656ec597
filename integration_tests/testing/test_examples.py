"""The example project runs as it is, on this machine; the how-to shows nothing else; and pytest-xdist may run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from integration_tests.brokers import ROOT

from .suites import Suite

EXAMPLE = ROOT / "examples" / "testing"
PAGE = ROOT / "docs" / "how-to" / "testing.md"


def test_the_example_passes_and_leaves_nothing(tmp_path: Path) -> None:
    suite = Suite(EXAMPLE, tmp_path)
    code, said = suite.run("-v")
    assert code == 0, said
    assert "isthmus: local: ISTHMUS_TESTING=local" in said
    assert re.search(r"\b8 passed in", said), said
    suite.await_nothing_left()


PARALLEL = """
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("number", range(4))
def test_a(isthmus_container, number):
    producer = Producer({"bootstrap.servers": isthmus_container.bootstrap})
    producer.produce(f"topic-{number}", b"x")
    assert producer.flush(30) == 0
"""


def test_processes_of_xdist_do_not_meet(tmp_path: Path) -> None:
    suite = Suite(tmp_path / "suite", tmp_path / "temporary").write("pytest.ini", "[pytest]\n")
    code, said = suite.write("test_x.py", PARALLEL).run("-n", "2")
    assert code == 0, said
    assert "4 passed" in said
    suite.await_nothing_left()


def blocks(page: Path) -> list[str]:
    """The code of a page: Python, YAML and INI."""
    return re.findall(r"```(?:python|yaml|ini)\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_how_to_shows_the_example_and_nothing_else() -> None:
    """Each block is part of one of the files, word for word."""
    files = {path.name: path.read_text() for path in sorted(EXAMPLE.iterdir()) if path.is_file()}
    shown = blocks(PAGE)
    assert len(shown) >= 4
    for block in shown:
        assert any(block in text for text in files.values()), block


@pytest.mark.parametrize("path", sorted(EXAMPLE.glob("test_*.py")), ids=lambda path: path.name)
def test_the_how_to_shows_every_test_of_the_example(path: Path) -> None:
    shown = "".join(blocks(PAGE))
    names = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    assert names
    assert [name for name in names if name not in shown and name not in PAGE.read_text()] == []
