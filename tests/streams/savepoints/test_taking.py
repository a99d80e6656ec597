"""What a savepoint says of how far an app has read its inputs, and when none can be taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.committed import Committed
from isthmus.streams.engine.checkpoint import Marker, Position
from isthmus.streams.errors import AppError, StreamsError
from isthmus.streams.savepoints import fence, taking
from isthmus.streams.savepoints.format import Part, Reached
from isthmus.streams.savepoints.taking import _reached
from tests.running import in_loop, run_by


def test_an_input_that_has_grown_is_as_far_as_its_bridge() -> None:
    """Of the same task, the group and the marker say the same; the group may have lost its offsets."""
    grown, same, lost = (TopicPartition(topic, 0) for topic in ("grown", "same", "lost"))
    group = {grown: Committed(7, 2), same: Committed(5, 1)}
    marker = Marker("app", 3, ("t",), {"grown": Position(4, 1), "same": Position(5, 1), "lost": Position(6, 1)})
    assert _reached(group, [(0, marker)]) == {grown: Reached(7, 2), same: Reached(5, 1), lost: Reached(6, 1)}


def test_a_table_that_its_task_has_no_more_does_not_say_how_far_that_is() -> None:
    tp = TopicPartition("in", 0)
    markers = [
        (0, Marker("app", number, (table,), {"in": Position(at)}))
        for number, table, at in [(5, "t", 9), (3, "gone", 7)]
    ]
    assert _reached({tp: Committed(8, 1)}, markers) == {tp: Reached(9)}


class Cluster:
    """An app that runs, as far as is asked before anything is read."""

    def __init__(self, patch: pytest.MonkeyPatch, *topics: str) -> None:
        self.topics = topics
        self.cluster_id = "here"
        patch.setattr(taking.admin, "is_running", self._runs)
        patch.setattr(taking.admin, "own_topics", self._own_topics)
        patch.setattr(taking, "Coordinator", lambda *_: None)
        patch.setattr(taking, "fetch_committed", self._committed)
        patch.setattr(fence, "is_up", self._is_fenced)
        patch.setattr(fence, "read", self._change)
        self.is_fenced = False

    async def _runs(self, *_: Any) -> bool:
        return True

    async def _is_fenced(self, *_: Any) -> bool:
        return self.is_fenced

    async def _change(self, *_: Any) -> fence.Change:
        return fence.Change(fence.RESTORE, "/saved", 7)

    async def _own_topics(self, client: Any, app: str, *kinds: str) -> list[str]:
        return [topic for topic in self.topics if any(topic.endswith(f"-{kind}") for kind in kinds)]

    async def _committed(self, *_: Any) -> dict[TopicPartition, Committed]:
        return {TopicPartition("in", 0): Committed(5, 1)}

    async def refresh_metadata(self, *_: Any) -> None: ...

    async def take(self, folder: Path) -> None:
        client: Any = self
        await taking.take(client, "app", folder)


@run_by(in_loop)
async def test_state_that_is_being_replaced_is_not_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = Cluster(monkeypatch)
    cluster.is_fenced = True
    with pytest.raises(StreamsError, match="app app: a restore of /saved is under way, or was not finished"):
        await cluster.take(tmp_path / "saved")


@run_by(in_loop)
async def test_while_an_app_runs_what_is_in_no_checkpoint_is_not_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(monkeypatch, "app-by-repartition")
    with pytest.raises(AppError, match=r"app app runs, and has topics between its steps \(app-by-repartition\)"):
        await cluster.take(tmp_path / "saved")

    async def tables(*_: Any) -> dict[str, list[Part]]:
        return {"rates": [Part(0, "tables/rates/0.batches", 1, 1, "", Marker("app", 7).encode().decode())]}

    monkeypatch.setattr(taking, "_tables", tables)
    cluster = Cluster(monkeypatch, "app-rates-changelog")
    with pytest.raises(AppError, match=r"app app runs, and has global tables \(rates\)"):
        await cluster.take(tmp_path / "saved")
