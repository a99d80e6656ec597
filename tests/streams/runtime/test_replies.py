"""Replies are read from where their topic ends when the question is asked, once they are committed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.runtime import system
from isthmus.streams.runtime import replies as replies_module
from isthmus.streams.runtime.replies import ReplyReader
from tests.running import in_loop, run_by

from .fakes import turns

TP = TopicPartition("replies", 0)


@run_by(in_loop)
async def test_what_comes_after_the_question_is_taken_once_it_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[dict[str, Any], dict[TopicPartition, int | None]]] = []
    data = memoryview(bytes(records.build_batch([(0, None, b"reply", ())], base_offset=5)))
    found = [FetchedBatches(TP, data, 5, 6, 6, 6)]

    class Reader:
        def __init__(self, client: Any, **options: Any) -> None:
            made.append((options, {}))

        def assign(self, places: dict[TopicPartition, int | None]) -> None:
            made[-1][1].update(places)

        async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
            if not found:
                await asyncio.Event().wait()
            return [found.pop()]

        async def close(self) -> None: ...

    class Ends:
        async def list_offsets(self, wanted: dict[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
            return dict.fromkeys(wanted, (5, -1))

    async def refresh_metadata(topics: list[str]) -> None: ...

    monkeypatch.setattr(replies_module, "Consumer", Reader)
    monkeypatch.setattr(replies_module, "Admin", lambda client: Ends())
    client: Any = SimpleNamespace(partitions=lambda topic: [0], refresh_metadata=refresh_metadata)
    taken: list[bytes | None] = []
    replies: Any = SimpleNamespace(take=taken.append, end=lambda: None)
    reader = ReplyReader(client, system(), replies, 1.0)
    await reader.read("replies")
    await reader.read("replies")
    [(options, places)] = made
    assert options["isolation"] == "read_committed" and places == {TP: 5}
    await turns()
    assert taken == [b"reply"]
    await reader.close()
