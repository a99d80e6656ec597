"""What a savepoint says of how far an app has read its inputs."""

from __future__ import annotations

from isthmus.client import TopicPartition
from isthmus.client.committed import Committed
from isthmus.streams.engine.checkpoint import Marker, Position
from isthmus.streams.savepoints.format import Reached
from isthmus.streams.savepoints.taking import _reached


def test_an_input_that_has_grown_is_as_far_as_its_bridge() -> None:
    """Of the same task, the group and the marker say the same; the group may have lost its offsets."""
    grown, same, lost = (TopicPartition(topic, 0) for topic in ("grown", "same", "lost"))
    group = {grown: Committed(7, 2), same: Committed(5, 1)}
    marker = Marker("app", 3, ("t",), {"grown": Position(4, 1), "same": Position(5, 1), "lost": Position(6, 1)})
    assert _reached(group, [(0, marker)]) == {grown: Reached(7, 2), same: Reached(5, 1), lost: Reached(6, 1)}
