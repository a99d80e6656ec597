"""What a restore writes, under the id that an app had or another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.client import TopicPartition
from isthmus.streams.engine.checkpoint import Marker, Position
from isthmus.streams.savepoints.format import Manifest, Part, Savepoint, Topic
from isthmus.streams.savepoints.plan import as_it_was

BETWEEN = "app-by-repartition"


def marker(app: str, positions: dict[str, Position]) -> Marker:
    between = BETWEEN.replace("app", app)
    part = "+".join(sorted((between, "z")))
    watermarks = {part: {"": [60, 70], between: [60, 0], "z": [80, 0]}}
    return Marker(app, 3, ("n",), positions, {}, {"n": 50}, watermarks, table={"version": 2, "part": part})


@pytest.mark.parametrize("app", ["app", "zoo"])
def test_a_checkpoint_is_all_that_it_was_but_for_names_and_positions(app: str) -> None:
    before = marker("app", {"z": Position(9, 4), BETWEEN: Position(30, 4), "gone": Position(1)})
    part = Part(0, "tables/n/0.batches", 0, 0, "", before.encode().decode())
    changelog, options = "app-n-changelog", {"cleanup.policy": "compact"}
    saved = Manifest(
        "app", "", 0, {"n": Topic(changelog, 1, options, (part,))}, {BETWEEN: Topic(BETWEEN, 1, {}, ())}, {}
    )
    plan = as_it_was(Savepoint(Path("saved"), saved), {TopicPartition("z", 0): Position(5)}, app)
    between = BETWEEN.replace("app", app)
    assert plan.markers == {
        TopicPartition(f"{app}-n-changelog", 0): marker(app, {"z": Position(5), between: Position(0)})
    }
    assert plan.offsets == {TopicPartition("z", 0): 5, TopicPartition(between, 0): 0}
    assert {name: each.partitions for name, each in plan.topics.items()} == {f"{app}-n-changelog": 1, between: 1}
