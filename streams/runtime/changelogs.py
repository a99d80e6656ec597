"""Notices changelogs that somebody deletes, or deletes and makes anew, while a worker has their rows.

What is written on such a topic lacks all rows that do not change again. The worker could write the whole table anew,
but only of tasks that run now: what is held by a failed task, or is on its way from one worker to another, is gone. So
it ends, and a person decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...client import Client
from ..errors import ChangelogError

MISSING_S = 10.0  # so long a topic may be unknown to a broker, which has just started, or to which it is new
AGAIN_S = 0.5


class Patience:
    """With a broker that has not heard of a topic, from when this is made."""

    def __init__(self) -> None:
        self._gives_up_at = asyncio.get_running_loop().time() + MISSING_S

    async def again(self) -> bool:
        """Wait until it is time to ask again. False, at once, where it is in vain."""
        if asyncio.get_running_loop().time() >= self._gives_up_at:
            return False
        await asyncio.sleep(AGAIN_S)
        return True


class Changelogs:
    """Of one worker, while it runs: the topics that it has found or made. A cluster without topic ids (Kafka before
    2.8) tells of those that are gone, and `check_end` of all."""

    def __init__(self, app: str, client: Client) -> None:
        self._app = app
        self._client = client
        self._ids: dict[str, bytes | None] = {}

    def learn(self, topics: Iterable[str]) -> None:
        """These are there, as the client knows."""
        for topic in topics:
            self._ids.setdefault(topic, self._client.topic_id(topic))

    async def check(self, topics: Iterable[str]) -> None:
        """Raises ChangelogError for one that was there and is not, or is another one now."""
        learnt = [topic for topic in topics if topic in self._ids]
        if not learnt:
            return
        patience = Patience()
        await self._client.refresh_metadata(learnt)
        while missing := [topic for topic in learnt if not self._client.partitions(topic)]:
            if not await patience.again():
                raise gone(self._app, missing[0], "is not there any more")
            await self._client.refresh_metadata(learnt)
        for topic in learnt:
            before, now = self._ids[topic], self._client.topic_id(topic)
            if None not in (before, now) and before != now:
                raise gone(self._app, topic, "was deleted and made anew while its rows were in use")


def check_end(app: str, topic: str, partition: int, known: int, first: int) -> None:
    """known: offset up to which rows are in the table; first: of what was written now. Raises ChangelogError where the
    partition has less than was there."""
    if first < known:
        raise gone(
            app,
            topic,
            f"has lost records, or was deleted and made anew: the rows of partition {partition} go up to offset "
            f"{known}, and the next was written at {first}",
        )


def gone(app: str, topic: str, how: str) -> ChangelogError:
    return ChangelogError(
        f"app {app}: changelog {topic} {how}. Rows that do not change again would be lost with the next restart, so "
        "the worker ends. Workers that start now go on with what the topic has. Stop them all, and have the tables "
        "restored from a savepoint, `isthmus streams restore FOLDER --force`, or computed from the inputs again, "
        f"`isthmus streams reset {app}`"
    )
