"""Planted bugs of what `stream-growth` has and other scenarios of streams have not: inputs with tables that grow,
agents' own topics, lanes, rows that end, savepoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


# --- Growth -----------------------------------------------------------------------------------------------------------


def one_broker_is_asked(stack: contextlib.ExitStack) -> None:
    """How many partitions a topic has is what any broker knows, which may have heard less than the one of a writer."""
    from isthmus.streams.runtime.growth import Growth

    async def counts(self: Any, topics: Sequence[str]) -> dict[str, int]:
        await self._client.refresh_metadata(topics)
        return {name: len(self._client.partitions(name)) for name in topics}

    _replace(stack, Growth, "counts", counts)


def growth_is_not_looked_for(stack: contextlib.ExitStack) -> None:
    """A commit has what was read of an input that has grown, by the old number of partitions."""
    from isthmus.streams.runtime.topics import AppTopics

    async def check_growth(self: Any) -> None: ...

    _replace(stack, AppTopics, "check_growth", check_growth)


def copies_fit_any_task(stack: contextlib.ExitStack) -> None:
    """When an input has grown, a bridge takes the copy of the task whose name it has."""
    from isthmus.streams.runtime.layout import Layout

    _replace(stack, Layout, "tables_of", lambda self, id: mock.ANY)


def bridges_keep_partitions(stack: contextlib.ExitStack) -> None:
    """A bridge has records where they came from, and not where the rows of their keys are."""
    from isthmus.streams.runtime import layout

    _replace(stack, layout, "_bridged", lambda event, count: event.partition % count)


def bridged_topics_begin_anew(stack: contextlib.ExitStack) -> None:
    """What a task with tables had read of an input is read again by the bridge that brings it from then on."""
    from isthmus.streams.runtime.restoring import Restoring

    real = Restoring._restore

    async def restore(self: Any, tasks: Any) -> None:
        consumer, bridged = self._consumer, self._topics.layout.bridged

        async def committed(tps: Any) -> Any:
            found = await type(consumer).committed(consumer, tps)
            return {tp: offset for tp, offset in found.items() if tp.topic not in bridged}

        consumer.committed = committed
        await real(self, tasks)

    _replace(stack, Restoring, "_restore", restore)


# --- Agents' own topics -----------------------------------------------------------------------------------------------


def forwarded_records_outside_the_transaction(stack: contextlib.ExitStack) -> None:
    """What `through` and `group_by` bring to a topic counts at once."""
    from isthmus.streams.api.derive import Step

    real = Step.__init__

    def init(self: Any, source: Any, target: Any, processors: Any, key: Any) -> None:
        real(self, source, target, processors, key)
        self.target = target.at_once()

    _replace(stack, Step, "__init__", init)


# --- Lanes ------------------------------------------------------------------------------------------------------------


def lanes_are_committed_apart(stack: contextlib.ExitStack) -> None:
    """A checkpoint is taken when one lane of the task is between events, though another is not."""
    from isthmus.streams.runtime.task_run import TaskRun

    _replace(stack, TaskRun, "is_whole", property(lambda self: any(lane.is_whole for lane in self.lanes)))


def writers_are_left_out(stack: contextlib.ExitStack) -> None:
    """A commit has outputs of a task that is in the middle of an event, and not its checkpoint."""
    from isthmus.streams.runtime.worker import StreamWorker

    _replace(stack, StreamWorker, "_writers", lambda self: ())


def steps_of_ended_tasks_go_on(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.runtime.rounds import Rounds

    async def drop(self: Any, run: Any) -> None:
        self._owed.pop(run, None)
        for lane in run.lanes:
            self._steps.pop(lane, None)
            self._slow.pop(lane, None)

    _replace(stack, Rounds, "drop", drop)


# --- Rows that end ----------------------------------------------------------------------------------------------------


def restored_rows_do_not_end(stack: contextlib.ExitStack) -> None:
    from isthmus.streams.engine.operators.table_sources import TableSource

    def read(self: Any) -> Iterator[None]:
        yield

    _replace(stack, TableSource, "read", read)


# --- Savepoints -------------------------------------------------------------------------------------------------------


def savepoints_leave_out_what_is_unread(stack: contextlib.ExitStack) -> None:
    """Topics between two steps are empty after a restore."""
    from isthmus.streams.savepoints import taking

    real = taking._between

    async def between(client: Any, topic: str, reached: Any, *given: Any) -> Any:
        from isthmus.client import TopicPartition
        from isthmus.streams.savepoints.format import Reached

        tps = [TopicPartition(topic, partition) for partition in client.partitions(topic)]
        ends = await taking._ends(client, tps, taking.READ_UNCOMMITTED)
        return await real(client, topic, {tp: Reached(end, -1) for tp, end in ends.items()}, *given)

    _replace(stack, taking, "_between", between)


def savepoints_have_all_between_steps(stack: contextlib.ExitStack) -> None:
    """Of topics between two steps what was read is saved, too, and is read again."""
    from isthmus.streams.savepoints import taking

    real = taking._between

    async def between(client: Any, topic: str, reached: Any, *given: Any) -> Any:
        return await real(client, topic, {}, *given)

    _replace(stack, taking, "_between", between)


def restores_forget_offsets(stack: contextlib.ExitStack) -> None:
    """Tasks without tables begin anew."""
    from isthmus.streams.savepoints import plan

    real = plan.as_it_was
    _replace(stack, plan, "as_it_was", lambda *given: replace(real(*given), offsets={}))


def savepoints_have_what_is_not_committed(stack: contextlib.ExitStack) -> None:
    from isthmus.client import Consumer
    from isthmus.streams.savepoints import taking

    def uncommitted(*given: Any, isolation: str, **options: Any) -> Consumer:
        return Consumer(*given, isolation="read_uncommitted", **options)

    _replace(stack, taking, "Consumer", uncommitted)


def savepoints_do_not_wait(stack: contextlib.ExitStack) -> None:
    """What may still be committed is not waited for."""
    from isthmus.streams.savepoints import taking

    real = taking.fetch_committed

    async def fetch_committed(*given: Any) -> Any:
        return await real(*given, require_stable=False)

    _replace(stack, taking, "fetch_committed", fetch_committed)
    _replace(stack, taking, "READ_UNCOMMITTED", taking.READ_COMMITTED)


PLANTS: dict[str, Plant] = {
    "bridged-topics-begin-anew": bridged_topics_begin_anew,
    "bridges-keep-partitions": bridges_keep_partitions,
    "copies-fit-any-task": copies_fit_any_task,
    "forwarded-records-outside-the-transaction": forwarded_records_outside_the_transaction,
    "growth-is-not-looked-for": growth_is_not_looked_for,
    "lanes-are-committed-apart": lanes_are_committed_apart,
    "one-broker-is-asked": one_broker_is_asked,
    "restored-rows-do-not-end": restored_rows_do_not_end,
    "restores-forget-offsets": restores_forget_offsets,
    "savepoints-do-not-wait": savepoints_do_not_wait,
    "savepoints-have-all-between-steps": savepoints_have_all_between_steps,
    "savepoints-have-what-is-not-committed": savepoints_have_what_is_not_committed,
    "savepoints-leave-out-what-is-unread": savepoints_leave_out_what_is_unread,
    "steps-of-ended-tasks-go-on": steps_of_ended_tasks_go_on,
    "writers-are-left-out": writers_are_left_out,
}
