"""A metadata log whose sync was refused for want of room comes back by itself, with all that was decided and nothing
that is not on disk."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import Controller, CreateTopics, new_topic
from isthmus.core_broker.cluster.image import Delta, MetadataImage
from isthmus.core_broker.cluster.metadata_log import DIRECTORY, MetadataLog
from isthmus.core_broker.cluster.quorum.member import alone
from isthmus.core_broker.cluster.quorum.quorum import MetadataQuorum
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.pauses import RETRY_FIRST_S, RETRY_MOST_S
from isthmus.protocol.errors import ErrorCode
from isthmus.runtime import Runtime
from tests.core_broker.storage.support import BrokenFiles
from tests.core_broker.ticked import TickedPauses
from tests.running import in_loop, run_by

from .support import join

NOTE = "sync-failed"
LOG = "00000000000000000000.log"
FULL, BROKEN = errno.ENOSPC, errno.EIO


class Node:
    """One start of a controller on a disk to break. Time stands still: `tick` ends the pause before the next try."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / DIRECTORY / LOG
        self.files = BrokenFiles()
        self.seen: list[str] = []  # topics whose creation rooms were told of
        self.pauses = TickedPauses()

    async def start(self) -> Node:
        runtime = Runtime(random.Random(1), lambda: 1_000, lambda: 0)
        self.log = await MetadataLog.open(self.files, str(self.path), runtime)
        self.image = MetadataImage("cluster-x")
        metadata = MetadataQuorum(self.log, self.image, runtime, alone(1))
        self.controller = Controller(metadata, BrokerConfig(), runtime, "PLAINTEXT")
        await metadata.start()
        self.controller.subscribe(self._react)
        self.controller._pauses = self.pauses
        assert not (await join(self.controller)).error_code
        return self

    def _react(self, delta: Delta) -> None:
        self.seen += delta.created

    async def create(self, name: str) -> tuple[int, str | None]:
        """Error code and message."""
        [item] = (await self.controller.submit_wait(CreateTopics([new_topic(name)]))).items
        return item.error_code, item.error_message

    def refuse(self, number: int, *kinds: str) -> None:
        def trap(kind: str, path: str) -> None:
            if kind in (kinds or ("sync",)):
                raise OSError(number, os.strerror(number), path)

        self.files.trap = trap

    def heal(self) -> None:
        self.files.trap = lambda kind, path: None

    async def tick(self) -> None:
        """Have the log tried once more; returns when that is over."""
        await asyncio.sleep(0)
        task = self.controller._coming_back
        assert task is not None, "nobody looks for room"
        self.pauses.tick()
        while not task.done() and not self.pauses.is_pausing:
            await asyncio.sleep(0)

    @property
    def is_looking(self) -> bool:
        return self.controller._coming_back is not None


def run(path: Path, history: Callable[[Node], Coroutine[Any, Any, list[str]]]) -> None:
    """A start after a kill, and one after a stop, find the topics that the history gives."""

    async def main() -> None:
        node = await Node(path).start()
        topics = await history(node)
        node.heal()
        for ends in (False, True):
            if ends:
                await node.controller.close()
            node = await Node(path).start()
            assert list(node.image.topics) == topics
        await node.controller.close()

    asyncio.run(main())


async def refused(node: Node) -> None:
    """A topic on disk, and the next in doubt."""
    assert await node.create("a") == (ErrorCode.NONE, None)
    node.refuse(FULL)
    code, message = await node.create("b")
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert message and "No space left on device" in message and "may be done once the shortage is over" in message
    assert list(node.image.topics) == node.seen == ["a"]


def test_log_whose_sync_was_refused_for_want_of_room_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def history(node: Node) -> list[str]:
        await refused(node)
        assert f"{DIRECTORY} is offline until the shortage is over" in caplog.text
        await node.tick()
        assert (await node.create("c"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        node.heal()
        before = len(node.files.calls)
        await node.tick()
        assert list(node.image.topics) == node.seen == ["a", "b"]  # it is in the log: a start would find it, too
        on_copy = [kind for kind, path in node.files.calls[before:] if path.endswith(f"{LOG}.tmp")]
        assert on_copy[0] == "open" and on_copy[-2:] == ["sync", "rename"]  # the system forgets the old pages
        assert not (node.path / DIRECTORY / NOTE).exists()
        assert "the metadata log is online again" in caplog.text and not node.is_looking
        assert await node.create("d") == (ErrorCode.NONE, None)
        assert (await node.create("b"))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        return ["a", "b", "d"]

    run(tmp_path, history)


def test_control_broken_disk_at_a_sync_waits_for_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def history(node: Node) -> list[str]:
        node.refuse(BROKEN)
        assert (await node.create("a"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        node.heal()
        assert not node.is_looking
        assert (await node.create("a"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert f"{DIRECTORY} is offline until the broker starts again" in caplog.text
        assert not node.image.topics
        return ["a"]

    run(tmp_path, history)


@pytest.mark.parametrize("kinds", [("sync",), ("append",), ("open",), ("rename",)])
def test_tries_that_find_no_room_come_ever_less_often(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Whichever call of the copy it is."""

    async def history(node: Node) -> list[str]:
        await refused(node)
        node.refuse(FULL, *kinds)
        for _ in range(7):
            await node.tick()
        assert node.pauses.lengths_s == [RETRY_FIRST_S * 2**n for n in range(5)] + [RETRY_MOST_S] * 3
        node.heal()
        await node.tick()
        assert list(node.image.topics) == ["a", "b"] and not node.is_looking
        return ["a", "b"]

    run(tmp_path, history)


def test_disk_that_is_found_broken_at_a_try_waits_for_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def history(node: Node) -> list[str]:
        await refused(node)
        node.refuse(BROKEN)
        await node.tick()
        assert not node.is_looking
        node.heal()
        code, message = await node.create("c")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR and message and "Input/output error" in message
        assert "the metadata log is offline until the broker starts again" in caplog.text
        return ["a", "b"]

    run(tmp_path, history)


def test_what_the_disk_has_not_kept_of_what_was_in_doubt_is_not_done(tmp_path: Path) -> None:
    async def history(node: Node) -> list[str]:
        assert (await node.create("a"))[0] == ErrorCode.NONE
        size = node.file.stat().st_size
        node.refuse(FULL)
        assert (await node.create("b"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        os.truncate(node.file, size + 10)
        node.heal()
        await node.tick()
        assert list(node.image.topics) == ["a"]
        assert await node.create("c") == (ErrorCode.NONE, None)
        return ["a", "c"]

    run(tmp_path, history)


def test_a_disk_that_has_not_kept_what_was_decided_waits_for_a_start(tmp_path: Path) -> None:
    """Nothing may be written in place of what clients were told."""

    async def history(node: Node) -> list[str]:
        size = node.file.stat().st_size
        await refused(node)
        os.truncate(node.file, size)
        node.heal()
        await node.tick()
        assert not node.is_looking
        code, message = await node.create("c")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert message and f"{DIRECTORY} ends at offset 3, but" in message
        assert node.file.stat().st_size == size
        return []

    run(tmp_path, history)


@run_by(in_loop)
async def test_a_stop_does_not_wait_for_room(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    await refused(node)
    failure = await node.controller.close()
    assert failure is not None and "No space left on device" in failure.message
    assert not node.is_looking
