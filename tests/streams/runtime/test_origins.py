"""What is learned of copies and their sources: from options, the mirrors' status, and MirrorMaker's names."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.mirror import discovery, link, status
from isthmus.mirror.partition import PartitionMirror
from isthmus.streams.engine.origin import Beat, Copy, Origins
from isthmus.streams.runtime import origins
from isthmus.streams.runtime.origins import Known, OriginsFollower, copies_among
from tests.running import in_loop, run_by

from .fakes import turns


def mirrored(seen_ms: int, mirrored_to: int) -> PartitionMirror:
    each = PartitionMirror("orders", 1, "copy-of-orders", bytes(16), now_ms=0)
    each.probe_answered(mirrored_to, 1)
    each.seen_ms, each.source_high_watermark = seen_ms, 9
    return each


def beat(known: Known, seen_ms: int, mirrored_to: int) -> None:
    of = link.MirrorLink("paris-hub", "fra", ["orders"], rename="copy-of-{topic}")
    for number, said in enumerate(status.heartbeats(of, [mirrored(seen_ms, mirrored_to)], seen_ms)):
        known.add(status.status_key("paris-hub", "", status.HEARTBEAT - number), json.dumps(said).encode())


def row(target_topic: str) -> bytes:
    said: dict[str, Any] = {"state": "MIRRORING", "target_topic": target_topic}
    return json.dumps(said).encode()


def test_mirrors_and_streams_mean_the_same() -> None:
    assert origins.LINK_OPTION == discovery.LINK_OPTION
    assert (origins.STATUS.topic, origins.HEARTBEAT) == (status.STATUS_TOPIC, status.HEARTBEAT)


def test_heartbeats_say_which_datacenter_and_how_far() -> None:
    known = Known()
    beat(known, 500, 7)
    assert known.sources == {"copy-of-orders": Copy("fra", "orders")}
    assert known.beats == {("copy-of-orders", 1): Beat(500, 9, 7, 500)}
    beat(known, 400, 6)  # of another worker of the link, which is behind
    assert known.beats == {("copy-of-orders", 1): Beat(500, 9, 7, 500)}


def test_without_heartbeats_the_status_says_it() -> None:
    known = Known()
    known.add(b"l/orders/0", row("fra.orders"))
    known.add(b"l/orders/0", None)
    known.add(b"other/orders/0", row("renamed"))
    known.add(b"l//-1", b'{"state": "NO_TOPICS"}')
    for key, value in ((None, b"x"), (b"l/orders/0", b"["), (b"l//-2", b'{"topics": 1}'), (b"l/x/y", b"{}")):
        known.add(key, value)  # of no release that is known
    assert known.sources == {"fra.orders": Copy("fra", "orders")}


def test_what_is_a_copy() -> None:
    known = {"fra.orders": Copy("fra", "orders"), "stale": Copy("fra", "stale")}
    present = ["us.east.heartbeats", "mm.checkpoints.internal", "heartbeats", "mm.orders", "x.orders"]
    topics = ["fra.orders", "stale", "mm.orders", "us.east.a.b", "x.orders", "plain"]
    assert copies_among(topics, ["fra.orders"], known, present) == {
        "fra.orders": Copy("fra", "orders"),
        "mm.orders": Copy("mm", "orders", keeps_offsets=False),
        "us.east.a.b": Copy("us.east", "a.b", keeps_offsets=False),
    }


@run_by(in_loop)
async def test_the_first_word_of_a_mirror_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the origin of a record is called must not change."""

    class Cluster:
        async def describe_configs(self, topics: list[str]) -> dict[str, list[Any]]:
            return {topic: [SimpleNamespace(name=origins.LINK_OPTION, value="link")] for topic in topics}

        async def list_topics(self) -> list[str]:
            return ["copy-of-orders"]

    monkeypatch.setattr(origins, "Admin", lambda client: Cluster())
    monkeypatch.setattr(origins, "RETRY_S", 0.0)
    found, client = Origins("hub"), None
    follower = OriginsFollower("app", client, found)  # type: ignore[arg-type]
    learning = asyncio.ensure_future(follower.learn(["copy-of-orders"]))
    await turns()
    assert not learning.done()
    beat(follower._known, 500, 7)
    await learning
    assert found.copies == {"copy-of-orders": Copy("fra", "orders")}
