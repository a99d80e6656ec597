"""Planted bugs of fetch sessions and of what readers may see; `controls.py` has how they are used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def _remember_by(stack: contextlib.ExitStack, wanted: type) -> None:
    """A class of what sessions remember, which the short way of a request, being compiled, would not ask."""
    from isthmus.core_broker.server.apis import fetch

    _replace(stack, fetch, "Wanted", wanted)
    _replace(stack, fetch, "short_way", lambda version: None)


def limit_leaves_out_for_good(stack: contextlib.ExitStack) -> None:
    """A partition that a limit left no room for counts as one that has nothing to tell."""
    from isthmus.core_broker.server._wanted import Wanted

    class Planted(Wanted):
        def tell(self, data: Any) -> bool:
            news = super().tell(data)
            if not news and self.partition is not None:
                self.idle, self.idle_epoch = self.partition, self.partition.leader_epoch
            return news

    _remember_by(stack, Planted)


def session_epochs_not_checked(stack: contextlib.ExitStack) -> None:
    """A request that is sent again goes on with the session, though its first answer never came."""
    from isthmus.core_broker.server.fetch_sessions import FetchSessions

    real = FetchSessions.resume

    def resume(self: FetchSessions, session_id: int, epoch: int, by_id: bool) -> Any:
        session = self._sessions.get(session_id)
        if session is not None:
            session.epoch = epoch
        return real(self, session_id, epoch, by_id)

    _replace(stack, FetchSessions, "resume", resume)


def log_start_not_told(stack: contextlib.ExitStack) -> None:
    """A session tells of records and high watermarks alone."""
    from isthmus.core_broker.server._wanted import Wanted

    class Planted(Wanted):
        def tell(self, data: Any) -> bool:
            if self.log_start_offset >= 0:
                self.log_start_offset = data.log_start_offset
            return super().tell(data)

    _remember_by(stack, Planted)


def forgotten_partitions_stay(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.server.apis import fetch

    real = fetch._update
    _replace(stack, fetch, "_update", lambda session, asked, forgotten, by_id: real(session, asked, [], by_id))


def reads_past_the_high_watermark(stack: contextlib.ExitStack) -> None:
    """Readers are given what is not on disk yet, and told that it is safe."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.sync_or_advance

    def sync_or_advance(self: Partition) -> None:
        self.core.advance_high_watermark(self.log.log_end_offset)
        real(self)

    _replace(stack, Partition, "sync_or_advance", sync_or_advance)


def leader_epoch_not_raised(stack: contextlib.ExitStack) -> None:
    """A broker that starts leads under the epoch of its life before."""
    from isthmus.core_broker.replication.partition import Partition

    real = Partition.begin_epoch
    _replace(stack, Partition, "begin_epoch", lambda self, leader_epoch: real(self, 0))


PLANTS: dict[str, Plant] = {
    "forgotten-partitions-stay": forgotten_partitions_stay,
    "leader-epoch-not-raised": leader_epoch_not_raised,
    "limit-leaves-out-for-good": limit_leaves_out_for_good,
    "log-start-not-told": log_start_not_told,
    "reads-past-the-high-watermark": reads_past_the_high_watermark,
    "session-epochs-not-checked": session_epochs_not_checked,
}
