"""Planted bugs of what `stream-pipelines` has and other scenarios of streams have not: topics between two steps, event
time, copies, tables on disk and of two versions, outputs that wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def regrouped_records_outside_the_transaction(stack: contextlib.ExitStack) -> None:
    """With at_least_once, what goes to the app's own topics counts at once, as other outputs do."""
    from isthmus.streams.runtime.commits import Commits

    def is_in_transaction(self: Any, topic: Any) -> bool:
        return self._is_exactly_once and not topic.is_at_once

    _replace(stack, Commits, "_is_in_transaction", is_in_transaction)


def late_outputs_outside_the_transaction(stack: contextlib.ExitStack) -> None:
    """What `send_soon` was given counts at once."""
    from isthmus.streams.runtime.commits import Commits

    _replace(stack, Commits, "send_soon", lambda self, task, record: self._sent(task, record.put(self._plain)))


def copies_take_what_is_not_committed(stack: contextlib.ExitStack) -> None:
    from isthmus.client import Consumer
    from isthmus.streams.runtime import copies

    def uncommitted(*given: Any, isolation: str, **options: Any) -> Consumer:
        return Consumer(*given, isolation="read_uncommitted", **options)

    _replace(stack, copies, "Consumer", uncommitted)


def watermarks_begin_anew(stack: contextlib.ExitStack) -> None:
    """A task that is restored takes events that were late before."""
    from isthmus.streams.engine import task

    _replace(stack, task, "watermarks_of", lambda *_: {})


def migrated_rows_are_not_written(stack: contextlib.ExitStack) -> None:
    """Rows of the new version are in the worker, and its marker in the changelog, without them."""
    from isthmus.streams.runtime import restoring

    real = restoring.prepare

    def prepare(task: Any) -> Any:
        done = yield from real(task)
        for table in done:
            store = task.stores[table]
            store.take_changes()
            store.confirm(store.changelog_offset, store.marker)
        return done

    _replace(stack, restoring, "prepare", prepare)


def disks_have_what_is_not_committed(stack: contextlib.ExitStack) -> None:
    """Changed rows are written to the database with a checkpoint, and not when it is committed."""
    from isthmus.streams.engine.stores.disk import DiskStore

    real = DiskStore.take_changes

    def take_changes(self: Any) -> Any:
        changes = real(self)
        rows = self._committed_rows + self._under_way_rows
        self._commit(changes, rows, self.changelog_offset, self.marker)
        self._under_way_rows = 0
        return changes

    _replace(stack, DiskStore, "take_changes", take_changes)


def answers_of_before_count(stack: contextlib.ExitStack) -> None:
    """A join by a foreign key takes an answer that was asked for when its row was another one."""
    from isthmus.streams.engine.operators import foreign_key_join

    _replace(stack, foreign_key_join, "hash_of", lambda value: "")


def references_are_forgotten(stack: contextlib.ExitStack) -> None:
    """A task that is restored does not know which rows refer to its own."""
    from isthmus.streams.engine.operators.foreign_key_join import ForeignKeyResponses

    def read(self: Any) -> Iterator[None]:
        yield

    _replace(stack, ForeignKeyResponses, "read", read)


def one_writer_is_waited_for(stack: contextlib.ExitStack) -> None:
    """What one task says of how far it is counts for all that write a topic."""
    from isthmus.streams.engine.time import Watermarks

    real = Watermarks._hear

    def hear(self: Any, topic: str, beat: Any) -> None:
        for partition in range(beat.tasks):
            real(self, topic, beat._replace(partition=partition))

    _replace(stack, Watermarks, "_hear", hear)


def heartbeats_wait_for_nothing(stack: contextlib.ExitStack) -> None:
    """A heartbeat counts at once, before the records that it comes behind."""
    from isthmus.streams.runtime.commits import Commits

    _replace(stack, Commits, "_is_in_transaction", _but_for_heartbeats(Commits._is_in_transaction))
    real = Commits.send_heartbeat

    async def send_heartbeat(self: Any, task: Any, topic: Any, beat: Any) -> None:
        self.__dict__["_is_beating"] = True
        try:
            await real(self, task, topic, beat)
        finally:
            self.__dict__["_is_beating"] = False

    _replace(stack, Commits, "send_heartbeat", send_heartbeat)


def _but_for_heartbeats(real: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda self, topic: not self.__dict__.get("_is_beating") and real(self, topic)


def copies_are_taken_as_they_are(stack: contextlib.ExitStack) -> None:
    """A task that begins with a copy of its tables does not read what the copy has not."""
    from isthmus.streams.runtime import restoring

    real = restoring.load

    async def load(client: Any, tasks: Any, *given: Any) -> None:
        fresh = [each for each in tasks if not any(store.marker for store in each.stores.values())]
        await real(client, fresh, *given)

    _replace(stack, restoring, "load", load)


def dropped_outputs_are_sent(stack: contextlib.ExitStack) -> None:
    """What waits for the producer when tasks go back goes into their next transaction."""
    from isthmus.streams.runtime.outputs import Outputs

    _replace(stack, Outputs, "drop", lambda self: None)


def commits_leave_columns_behind(stack: contextlib.ExitStack) -> None:
    """What waits for the producer is not in the commit of its events."""
    from isthmus.streams.runtime.commits import Commits

    real = Commits.begin_commit

    def begin_commit(self: Any, checkpoints: Any) -> Any:
        with mock.patch.object(Commits, "_hand_over", lambda self: None):
            return real(self, checkpoints)

    _replace(stack, Commits, "begin_commit", begin_commit)


PLANTS: dict[str, Plant] = {
    "answers-of-before-count": answers_of_before_count,
    "commits-leave-columns-behind": commits_leave_columns_behind,
    "copies-are-taken-as-they-are": copies_are_taken_as_they_are,
    "dropped-outputs-are-sent": dropped_outputs_are_sent,
    "heartbeats-wait-for-nothing": heartbeats_wait_for_nothing,
    "one-writer-is-waited-for": one_writer_is_waited_for,
    "references-are-forgotten": references_are_forgotten,
    "copies-take-what-is-not-committed": copies_take_what_is_not_committed,
    "disks-have-what-is-not-committed": disks_have_what_is_not_committed,
    "late-outputs-outside-the-transaction": late_outputs_outside_the_transaction,
    "migrated-rows-are-not-written": migrated_rows_are_not_written,
    "regrouped-records-outside-the-transaction": regrouped_records_outside_the_transaction,
    "watermarks-begin-anew": watermarks_begin_anew,
}
