"""Kafka's own DumpLogSegments on files of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from integration_tests.peers.peers import run


def dump(paths: Iterable[Path], *options: str) -> str:
    """What the tool prints. It complains on stderr; of logs only about offsets that are missing, as ours have."""
    files = ",".join(map(str, paths))
    done = run("org.apache.kafka.tools.DumpLogSegments", "--files", files, *options)
    complaints = re.sub(
        r"^Non-consecutive offsets in .*\.log\n(  -?\d+ is followed by \d+\n)*", "", done.stderr, flags=re.M
    )
    assert complaints == "", complaints
    return done.stdout


def sections(text: str) -> dict[str, str]:
    """What was printed of each file, by its name."""
    parts = re.split(r"^Dumping (\S+)$", text, flags=re.MULTILINE)
    return {Path(name).name: body for name, body in zip(parts[1::2], parts[2::2], strict=True)}
