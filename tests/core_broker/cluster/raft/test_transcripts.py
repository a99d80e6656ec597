"""The step function of the quorum does what its transcripts say. See transcripts.py for how to write one."""

from __future__ import annotations

import pytest

from .transcripts import DIRECTORY, played


@pytest.mark.parametrize("name", sorted(path.name for path in DIRECTORY.glob("*.txt")))
def test_transcript(name: str) -> None:
    text = (DIRECTORY / name).read_text()
    assert played(text) == text


def test_transcript_that_says_something_else_is_seen() -> None:
    text = (DIRECTORY / "one_voter.txt").read_text()
    assert played(text.replace("committed up to 1", "committed up to 2", 1)) == text
