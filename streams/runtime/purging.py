"""Deletes what the app has read of the topics between its steps, once that is committed (KIP-204).

Their records are of no use to anybody then: the task that read them has them in its state. Topics that the app does not
own by their names are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...client import Admin, Client, TopicPartition
from ...client.errors import ClientError, UnsupportedVersion
from ...protocol.errors import KafkaError

log = logging.getLogger("isthmus.streams")


class Purge:
    """is_between: whether a topic is one between steps. interval_s: between deletions; 0: there are none."""

    def __init__(self, app: str, client: Client, is_between: Callable[[str], bool], interval_s: float) -> None:
        self._app = app
        self._client = client
        self._is_between = is_between
        self._interval_s = interval_s
        self._at_s = 0.0
        self._due: dict[TopicPartition, int] = {}  # committed, and not deleted before
        self._purging: asyncio.Task[None] | None = None
        self._is_refused = False

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has these offsets now: what is before them may go."""
        if not self._interval_s or self._is_refused:
            return
        for tp, offset in offsets.items():
            if offset and self._is_between(tp.topic):
                self._due[tp] = offset

    def look(self, now_s: float) -> None:
        """Called some times a second: deletes what may go, if it is time, beside whatever else goes on."""
        if not self._due:
            return
        if not self._at_s:
            self._at_s = now_s + self._interval_s
        if now_s >= self._at_s and self._purging is None:
            self._at_s = now_s + self._interval_s
            due, self._due = self._due, {}
            self._purging = asyncio.get_running_loop().create_task(self._purge(due), name=f"purge of {self._app}")

    async def _purge(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            await Admin(self._client).delete_records(offsets)
        except UnsupportedVersion as error:
            self._refused(error)
        except (KafkaError, ClientError) as error:
            if isinstance(error, ClientError) or error.retriable:
                log.info("app %s: records that were read stay until the next time: %s", self._app, error)
            else:
                self._refused(error)
        finally:
            self._purging = None

    def _refused(self, error: Exception) -> None:
        self._is_refused = True
        log.warning(
            "app %s: the cluster refuses to delete what was read of topics between steps, which grow until it is "
            "allowed and the worker is started again: %s",
            self._app,
            error,
        )

    async def close(self) -> None:
        if self._purging is not None:
            self._purging.cancel()
            await asyncio.gather(self._purging, return_exceptions=True)
