"""Learns where the app's input is from, and follows what mirrors say of their sources.

Which topics are copies is in their options (`mirror.link`), and of what, in the target's topic `__mirror_status`; there
are the mirrors' heartbeats, too (`mirror/status.py` describes both). Topics that MirrorMaker 2 has brought are known by
their names, `<alias>.<topic>`, where its own topic `<alias>.heartbeats` or `<alias>.checkpoints.internal` is there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ...client import Admin, Client, Consumer, TopicPartition
from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ..engine.origin import Beat, Copy, Origins

log = logging.getLogger("isthmus.streams")

LINK_OPTION = "mirror.link"
STATUS = TopicPartition("__mirror_status", 0)
HEARTBEAT = -2  # partition in the key of a link's first heartbeat; others are below it
MIRROR_MAKER_TOPICS = ("heartbeats", "checkpoints.internal")
POLL_MS = 500
POLL_RECORDS_MAX = 10_000
RETRY_S = 1.0  # after an error in the background, and between looks for what is not there yet


class Known:
    """What `__mirror_status` says. Pure. sources: target topic -> what it is a copy of."""

    def __init__(self) -> None:
        self.sources: dict[str, Copy] = {}
        self.beats: dict[tuple[str, int], Beat] = {}

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """One record. What cannot be read is left out: another release may have written it."""
        try:
            _, source_topic, partition = (key or b"").decode().rsplit("/", 2)
            said = {} if value is None else json.loads(value)
            if int(partition) <= HEARTBEAT:
                self._beat(said)
            elif int(partition) >= 0 and said and said["target_topic"] not in self.sources:
                # Before a heartbeat the alias is known by the name alone, where it is made as by default.
                target_topic = said["target_topic"]
                alias = target_topic.removesuffix(f".{source_topic}")
                if alias != target_topic:
                    self.sources[target_topic] = Copy(alias, source_topic)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.debug("a record of %s is left out: key %r: %s", STATUS.topic, key, error)

    def _beat(self, said: Mapping[str, Any]) -> None:
        for target_topic, partitions in said.get("topics", {}).items():
            self.sources[target_topic] = Copy(said["source"], said["source_topics"][target_topic])
            for partition, seen_ms, source_end, mirrored_to in partitions:
                before = self.beats.get((target_topic, partition))
                if before is None or before.seen_ms <= seen_ms:  # several workers may carry a link
                    self.beats[target_topic, partition] = Beat(seen_ms, source_end, mirrored_to, said["time_ms"])


def copies_among(
    topics: Iterable[str], mirrored: Iterable[str], known: Mapping[str, Copy], present: Iterable[str]
) -> dict[str, Copy]:
    """Which of these topics are copies. mirrored: those with a mirror's option, all of them known; known: what mirrors
    say of their copies; present: the cluster's topics."""
    suffixes = tuple(f".{name}" for name in MIRROR_MAKER_TOPICS)
    aliases = {name.removesuffix(suffix) for suffix in suffixes for name in present if name.endswith(suffix)}
    mirrored = frozenset(mirrored)
    found: dict[str, Copy] = {}
    for topic in topics:
        if topic in mirrored:
            found[topic] = known[topic]
            continue
        dots = [at for at, letter in enumerate(topic) if letter == "."]
        at = next((at for at in reversed(dots) if topic[:at] in aliases), None)
        if at is not None and topic[at + 1 :]:
            found[topic] = Copy(topic[:at], topic[at + 1 :], keeps_offsets=False)
    return found


class OriginsFollower:
    """Keeps an app's `Origins` up to date. `learn` raises KafkaError, ClientError; what goes wrong in the background is
    logged and tried again, and shows as heartbeats that grow old."""

    def __init__(self, app: str, client: Client, origins: Origins) -> None:
        self._app = app
        self._client = client
        self._origins = origins
        self._known = Known()
        self._consumer: Consumer | None = None
        self._following: asyncio.Task[None] | None = None

    async def learn(self, topics: list[str]) -> None:
        """Find out of what these topics are copies. Waits for the first word of a mirror that has just begun: what a
        record's origin is called must not change."""
        if not topics:
            return
        admin = Admin(self._client)
        options = await admin.describe_configs(topics)
        mirrored = [
            topic
            for topic, entries in options.items()
            if any(entry.name == LINK_OPTION and entry.value for entry in entries)
        ]
        told = False
        while True:
            present = await admin.list_topics()
            if STATUS.topic in present:
                await self._read_all(admin)
            unknown = [topic for topic in mirrored if topic not in self._known.sources]
            if not unknown:
                break
            if not told:
                log.warning(
                    "app %s waits for the mirrors of %s to say in %s which datacenter they are from: does their mirror "
                    "run, and in this release?",
                    self._app,
                    ", ".join(unknown),
                    STATUS.topic,
                )
                told = True
            await asyncio.sleep(RETRY_S)
        self._origins.copies = copies_among(topics, mirrored, self._known.sources, present)
        self._origins.beats = self._known.beats
        for topic, copy in self._origins.copies.items():
            log.info("app %s: %s is a copy of %s in datacenter %s", self._app, topic, copy.topic, copy.datacenter)

    def follow(self) -> None:
        """Read heartbeats in the background from now on."""
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow(), name=f"origins of {self._app}")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()

    def _reader(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._client, auto_offset_reset="earliest")
            self._consumer.assign({STATUS: None})
        return self._consumer

    async def _read_all(self, admin: Admin) -> None:
        """Up to where the status ends now, unless `_follow` reads it."""
        if self._following is not None:
            return
        end = (await admin.list_offsets({STATUS: "latest"}))[STATUS][0]
        while (self._reader().position(STATUS) or 0) < end:
            if not await self._poll():
                end = min(end, (await admin.list_offsets({STATUS: "latest"}))[STATUS][0])  # it may have lost records

    async def _poll(self) -> int:
        polled = (await self._reader().poll(POLL_MS, POLL_RECORDS_MAX)).get(STATUS, ())
        for record in polled:
            self._known.add(
                None if record.key is None else bytes(record.key), None if record.value is None else bytes(record.value)
            )
        return len(polled)

    async def _follow(self) -> None:
        problem = ""
        while True:
            try:
                await self._poll()
                problem = ""
            except (KafkaError, ClientError) as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("app %s cannot read the heartbeats of mirrors: %s", self._app, problem)
                await asyncio.sleep(RETRY_S)
