"""What is asked of an app's changelogs from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.streams import admin
from isthmus.streams.errors import ChangelogError
from tests.running import in_loop, run_by

from .runtime.running import Clock

TP = TopicPartition("app-t-changelog", 0)


@run_by(in_loop)
async def test_a_broker_that_hangs_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Silent:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def list_offsets(self, wanted: Mapping[TopicPartition, str], *_: Any) -> dict[TopicPartition, Any]:
            return {TP: (0 if wanted[TP] == "earliest" else 9, -1)}

        def assign(self, positions: Mapping[TopicPartition, int]) -> None: ...

        def position(self, tp: TopicPartition) -> int:
            return 4

        async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
            clock.now += timeout_ms / 1000
            assert clock.now < 600
            return []

        async def close(self) -> None: ...

    monkeypatch.setattr(admin, "Admin", Silent)
    monkeypatch.setattr(admin, "Consumer", Silent)

    async def refresh(topics: list[str]) -> None: ...

    client: Any = SimpleNamespace(refresh_metadata=refresh, partitions=lambda topic: [0])
    with pytest.raises(ChangelogError, match=r"app-t-changelog-0 was read up to offset 4 of 9, .* hung"):
        await admin.last_markers(client, [TP.topic])
