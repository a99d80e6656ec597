"""Planted bugs of the stream worker: each takes out one rule that keeps tables, positions and outputs together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


# --- What is in a transaction -----------------------------------------------------------------------------------------


def rows_outside_the_transaction(stack: contextlib.ExitStack) -> None:
    """Rows and markers count at once, whatever becomes of the checkpoint."""
    from isthmus.streams.runtime.commits import Commits

    real = Commits._write
    _replace(stack, Commits, "_write", lambda self, producer, *given: real(self, self._plain, *given))


def offsets_not_in_the_transaction(stack: contextlib.ExitStack) -> None:
    """So that nobody asks whether the worker is still in its group."""
    from isthmus.streams.runtime.commits import Commits

    real = Commits._begun

    async def begun(self: Any) -> Any:
        producer = await real(self)

        async def send_offsets(*_: Any) -> None: ...

        producer.send_offsets = send_offsets
        return producer

    _replace(stack, Commits, "_begun", begun)


def commits_are_not_fenced(stack: contextlib.ExitStack) -> None:
    """Offsets are of no generation."""
    from isthmus.client import Consumer
    from isthmus.client.types import GroupMetadata

    _replace(stack, Consumer, "group_metadata", lambda self: GroupMetadata(self.group_id))


def outputs_outside_the_transaction(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.runtime.commits import Commits

    async def open_(self: Any) -> Any:
        return self._plain

    _replace(stack, Commits, "_open", open_)


def outputs_join_a_commit_under_way(stack: contextlib.ExitStack) -> None:
    """An output during a commit is in that transaction, and its event is not."""
    from isthmus.streams.runtime.commits import Commits

    _replace(stack, Commits, "_open", lambda self: self._begun())


def outputs_are_not_awaited(stack: contextlib.ExitStack) -> None:
    """A checkpoint does not wait until the outputs before it are acknowledged."""
    from isthmus.streams.runtime.commits import Commits

    real = Commits.begin_commit

    def begin_commit(self: Any, checkpoints: Any) -> Any:
        for each in self._outputs:
            each.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._outputs = []
        return real(self, checkpoints)

    _replace(stack, Commits, "begin_commit", begin_commit)


# --- What a checkpoint is of ------------------------------------------------------------------------------------------


def markers_are_one_too_far(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.engine.checkpoint import Marker

    real = Marker.encode

    def encode(self: Any) -> bytes:
        positions = {topic: at._replace(offset=at.offset + 1) for topic, at in self.positions.items()}
        return real(replace(self, positions=positions))

    _replace(stack, Marker, "encode", encode)


def commits_within_an_event(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.runtime.task_run import TaskRun

    _replace(stack, TaskRun, "is_whole", True)


def held_events_are_passed(stack: contextlib.ExitStack) -> None:
    """A position is behind events that an agent has taken and not done."""
    from isthmus.streams.runtime.agents import Readers

    _replace(stack, Readers, "held_from", None)


def fetches_take_turns(stack: contextlib.ExitStack) -> None:
    """A partition of which there is something to process is fetched on, and what came later is processed first."""
    from isthmus.streams.runtime.lane import Lane
    from isthmus.streams.runtime.worker import StreamWorker

    real = Lane.process

    async def process(self: Any, *given: Any) -> int:
        done = await real(self, *given)
        for queue in self._backlogs.values():
            queue.rotate(-1)
        return done

    _replace(stack, Lane, "process", process)
    _replace(stack, StreamWorker, "_hold_back", lambda self: None)


# --- Where a task goes on ---------------------------------------------------------------------------------------------


def changelogs_are_read_uncommitted(stack: contextlib.ExitStack) -> None:
    from isthmus.client import Consumer
    from isthmus.streams.runtime import loading

    def uncommitted(*given: Any, isolation: str, **options: Any) -> Consumer:
        return Consumer(*given, isolation="read_uncommitted", **options)

    _replace(stack, loading, "Consumer", uncommitted)


def successors_do_not_wait(stack: contextlib.ExitStack) -> None:
    """A task begins while a transaction of its last owner is undecided."""
    from isthmus.client import Admin, consumer
    from isthmus.client.raw import READ_COMMITTED
    from isthmus.streams.runtime import loading

    real_committed = consumer.fetch_committed

    class Hasty(Admin):
        async def list_offsets(self, wanted: Any, *_: Any) -> Any:
            return await super().list_offsets(wanted, READ_COMMITTED)

    async def fetch_committed(*given: Any, **_: Any) -> Any:
        return await real_committed(*given, require_stable=False)

    _replace(stack, loading, "Admin", Hasty)
    _replace(stack, consumer, "fetch_committed", fetch_committed)


def tasks_begin_before_they_are_restored(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.runtime import restoring

    async def load(_: Any, tasks: Sequence[Any], *__: Any) -> None:
        for task in tasks:
            task.restored()

    _replace(stack, restoring, "load", load)


def inputs_are_read_uncommitted(stack: contextlib.ExitStack) -> None:
    from isthmus.client import Consumer
    from isthmus.streams.runtime import group

    def uncommitted(*given: Any, isolation: str, **options: Any) -> Consumer:
        return Consumer(*given, isolation="read_uncommitted", **options)

    _replace(stack, group, "Consumer", uncommitted)


# --- Tasks that end ---------------------------------------------------------------------------------------------------


def lost_tasks_go_on(stack: contextlib.ExitStack) -> None:
    """What a worker had when its group removed it goes on there if it is given back, whatever others did meanwhile."""
    from isthmus.streams.runtime.worker import StreamWorker

    async def lost(self: Any, partitions: Any) -> None:
        self.consumer.pause(self.consumer.assignment())

    _replace(stack, StreamWorker, "_lost", lost)


def revoked_tasks_go_on(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.runtime.worker import StreamWorker

    async def revoked(self: Any, partitions: Any) -> None: ...

    _replace(stack, StreamWorker, "_revoked", revoked)


def refused_commits_change_nothing(stack: contextlib.ExitStack) -> None:
    """The worker goes on after a commit that was refused, and does its work not again."""
    from isthmus.streams.runtime.worker import StreamWorker

    async def go_back(self: Any, *_: Any) -> None:
        await self.commits.roll_back()

    _replace(stack, StreamWorker, "_go_back", go_back)


def stores_are_not_rolled_back(stack: contextlib.ExitStack) -> None:
    """A task that is restored finds the rows that it had changed before."""
    from isthmus.streams.engine.stores.memory import MemoryStore
    from isthmus.streams.runtime.worker import StreamWorker

    real = StreamWorker._new_store

    def new_store(self: Any, id: Any, table: str) -> Any:
        kept = self.__dict__.setdefault("_kept_stores", {})
        if (id, table) not in kept:
            kept[id, table] = real(self, id, table)
        return kept[id, table]

    _replace(stack, StreamWorker, "_new_store", new_store)
    _replace(stack, MemoryStore, "close", lambda self: None)


PLANTS: dict[str, Plant] = {
    "changelogs-are-read-uncommitted": changelogs_are_read_uncommitted,
    "commits-are-not-fenced": commits_are_not_fenced,
    "commits-within-an-event": commits_within_an_event,
    "fetches-take-turns": fetches_take_turns,
    "held-events-are-passed": held_events_are_passed,
    "inputs-are-read-uncommitted": inputs_are_read_uncommitted,
    "lost-tasks-go-on": lost_tasks_go_on,
    "markers-are-one-too-far": markers_are_one_too_far,
    "offsets-not-in-the-transaction": offsets_not_in_the_transaction,
    "outputs-are-not-awaited": outputs_are_not_awaited,
    "outputs-join-a-commit-under-way": outputs_join_a_commit_under_way,
    "outputs-outside-the-transaction": outputs_outside_the_transaction,
    "refused-commits-change-nothing": refused_commits_change_nothing,
    "revoked-tasks-go-on": revoked_tasks_go_on,
    "rows-outside-the-transaction": rows_outside_the_transaction,
    "stores-are-not-rolled-back": stores_are_not_rolled_back,
    "successors-do-not-wait": successors_do_not_wait,
    "tasks-begin-before-they-are-restored": tasks_begin_before_they_are_restored,
}
