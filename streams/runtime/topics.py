"""The topics of an app on a cluster, and how it is laid out over them.

Waits for the topics of others, makes the app's own, and sees when an input has grown: the app is laid out again then.
Which tasks run here is the worker's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ...client import Client
from ..api.app import App
from ..api.topics import Topic
from ..engine.changes import DOUBTED, LEFT, Written
from ..engine.changes import refusal as refused_by
from ..engine.failures import is_written
from ..engine.origin import Origins
from ..engine.partitioning import PAGE, Places
from ..errors import CommitRefused
from ..savepoints import fence
from .changelogs import Changelogs
from .declaring import CHANGELOG_OPTIONS, create
from .growth import Growth
from .layout import Layout, between_options, partitions_of
from .origins import OriginsFollower
from .written import compared

log = logging.getLogger("isthmus.streams")

TOPICS_WAIT_S = 1.0  # between looks for input topics that are not there yet


class AppTopics:
    """Of one worker. inputs: declarations of all that the app's code reads, by name; origins: where the input is from;
    layout: with one partition of each, until `lay_out`; places: of topics whose records must be where their keys
    belong; counts: partitions of the inputs in this layout; has_grown: one of these has changed since."""

    def __init__(self, app: App, client: Client) -> None:
        self._app = app
        self._client = client
        self._tables = app.all_tables()
        self.inputs = app.input_topics()
        self.origins = Origins(app.datacenter)
        self._follower = OriginsFollower(app.id, client, self.origins) if app.needs_origins else None
        ones = dict.fromkeys(self.inputs, 1), dict.fromkeys(app.tables, 1)
        self.layout = Layout.of(app, *ones, self.origins)
        self.places: dict[str, Places] = {}
        self.counts: dict[str, int] = {}
        self.has_grown = False
        self._growth = Growth(client)
        self.changelogs = Changelogs(app.id, client)
        self._written = Written()  # what `check_changes` has found

    async def check_changes(self) -> None:
        """Compare the code with what its state was written by. Raises ChangeRefused where they do not go together."""
        changes, found = await compared(self._client, self._app)
        if shifting := self._app.pipeline.shifting:
            log.warning(
                "app %s: steps %s have state and no name=: their names are made of what they read, and with a new name "
                "they would begin empty",
                self._app.id,
                ", ".join(shifting),
            )
        error = refused_by(self._app.id, changes)
        if error is not None:
            raise error
        for change in changes:
            level = logging.WARNING if change.effect in (LEFT, DOUBTED) else logging.INFO
            log.log(level, "app %s: %s", self._app.id, change)
        self._written = found

    async def lay_out(self) -> None:
        """Find out how the app runs with the partitions that there are, and make the topics of its own."""
        await fence.check(self._client, self._app.id)
        outside = [name for name, topic in self.inputs.items() if not topic.is_internal]
        await self._until_there(outside)
        changelogs = {
            name: self._app.changelog_topic(name) for name, spec in self._tables.items() if not spec.is_global
        }
        await self._client.refresh_metadata(list(changelogs.values()))
        await self.changelogs.check(changelogs.values())
        own = {name: (self._partitions_of(topic), self._options(name, topic)) for name, topic in self._own().items()}
        await create(self._client, self._app.conf, own)
        await self._until_there(list(self.inputs))
        self.counts = self._counted()
        await self._client.refresh_metadata([*self.inputs, *changelogs.values()])
        have = {table: count for table, name in changelogs.items() if (count := self._count(name))}
        if self._follower is not None:
            await self._follower.learn(outside)
            if self._app.watermarks is not None:
                self._follower.follow()
        self.layout = Layout.of(self._app, self.counts, have, self.origins)
        self.changelogs.learn(changelogs.values())
        self.places = self.layout.places()
        bridges = {name: (count, self._options(name)) for name, count in self.layout.bridges.items()}
        for_tables = {
            changelogs[table]: (count, CHANGELOG_OPTIONS | dict(self._tables[table].changelog_options))
            for table, count in self.layout.tables.items()
        }
        await create(self._client, self._app.conf, bridges | for_tables)
        self._tell_layout()

    def _own(self) -> dict[str, Topic]:
        """Topics of the app that there are in any layout."""
        own = {name: topic for name, topic in self.inputs.items() if topic.is_internal}
        policies = [each.on_error for each in self._app.all_agents()] + [each.on_error for each in self.inputs.values()]
        if any(map(is_written, policies)):
            own |= dict.fromkeys(self._app.dead_letters.names, self._app.dead_letters)
        return own

    def _tell_layout(self) -> None:
        for topics in self.layout.apart:
            log.warning(
                "app %s: topics are read together that are partitioned by different rules, so that records of one key "
                "do not meet: %s. See %s",
                self._app.id,
                topics,
                PAGE,
            )
        for name, count in self.layout.bridges.items():
            log.info(
                "app %s: a topic has another number of partitions than what it belongs with: its records go through "
                "%s, with %d",
                self._app.id,
                name,
                count,
            )

    def digests(self) -> dict[str, str]:
        """Of the sub-topologies, in this layout."""
        return {name: self.layout.described(name)["digest"] for name in self.layout.topology.subtopologies}

    def fitting(self) -> frozenset[str]:
        """Sub-topologies whose tables were written by this code when this worker started."""
        return frozenset(
            name
            for name, digest in self.digests().items()
            if all(self._digests_of(table) == {digest} for table in self.layout.topology.subtopologies[name].tables)
        )

    def _digests_of(self, table: str) -> set[str]:
        """Of the sub-topology that a table was in when this worker started, as its markers say."""
        return {marker.topology.get("digest", "") for marker in self._written.markers.get(table, {}).values()}

    async def check_growth(self) -> None:
        """Raises CommitRefused where a topic that a table belongs to has grown: records that were read since the last
        commit may be in another partition than the rows of their keys."""
        tied = [name for name in self.inputs if name in self.layout.direct]
        if not tied:
            return
        for name, count in (await self._growth.counts(tied)).items():
            if count != self.counts[name]:
                self.has_grown = True
                raise CommitRefused(
                    f"app {self._app.id}: topic {name} has grown; what was read of it since is read again"
                )

    def look(self) -> None:
        """Notice what the client has learned of inputs that have grown."""
        if self._counted() != self.counts:
            self.has_grown = True

    def _counted(self) -> dict[str, int]:
        return {name: self._count(name) for name in self.inputs}

    def _count(self, topic: str) -> int:
        return len(self._client.partitions(topic))

    async def _until_there(self, topics: Sequence[str]) -> None:
        told = False
        while True:
            await self._client.refresh_metadata(topics)
            missing = [name for name in topics if not self._client.partitions(name)]
            if not missing:
                return
            if not told:
                log.warning(
                    "app %s waits for missing topics: %s (mirrors bring copies; make others by `isthmus topic create`, "
                    "or `topics` in a topology file)",
                    self._app.id,
                    ", ".join(missing),
                )
                told = True
            await asyncio.sleep(TOPICS_WAIT_S)

    def _partitions_of(self, topic: Topic) -> int:
        """How many partitions a topic of the app gets."""
        return partitions_of(topic, self._app, self.inputs, self._count, self._app.topic_partitions)

    def _options(self, name: str, topic: Topic | None = None) -> Mapping[str, Any]:
        """Of a topic of the app."""
        return {**between_options(self._app, name), **({} if topic is None else topic.config)}

    async def close(self) -> None:
        if self._follower is not None:
            await self._follower.close()
