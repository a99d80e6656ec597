"""Looks up one row for who asks a worker over HTTP: here, at the owner, or in a copy that is new enough.

A row is answered by the worker whose task has it. Who says how old an answer may be gets one from a standby, too: at
once where it is here, else while the owner restarts, restores its tables or is gone. How old the answer is is said in
it: since when the copy has not had all that is committed. What the owner has not committed yet is in no copy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from ..api.routing import NoOwner
from ..api.union import HasRows
from ..api.web import NotFound, ServiceUnavailable
from ..engine.key_text import readings
from ..engine.stores.store import Store
from ..engine.task import TaskId
from ..errors import AppError
from .owners import GroupOwners
from .worker import StreamWorker

OK = 200


class Row(NamedTuple):
    """value: of a table with windows, [{start_ms, value}]. staleness_ms: 0 at the owner."""

    key: Any
    value: Any
    staleness_ms: int


class NoRow(LookupError):
    """Whoever has the task has no such row. staleness_ms: of what was looked at."""

    def __init__(self, staleness_ms: int) -> None:
        super().__init__()
        self.staleness_ms = staleness_ms


Forward = Callable[[str], Awaitable[Any]]  # to a URL; gives the answer, or raises ServiceUnavailable


class Lookup:
    """Of one worker."""

    def __init__(self, worker: StreamWorker) -> None:
        self._worker = worker
        self._owners = GroupOwners(worker)

    async def row(self, table: str, key: str, max_staleness_ms: int | None, forward: Forward | None) -> Any:
        """A `Row`, or the answer of another worker. forward: None: another one has sent the request here. Raises NoRow,
        and ServiceUnavailable with the reason."""
        worker = self._worker
        spec = worker.app.all_tables()[table]
        wanted = readings(key, spec.key_type)
        if spec.is_global:
            return self._global(table, wanted, max_staleness_ms)
        age_ms = worker.unheard_ms  # of what is here, where it may be another worker's by now
        if age_ms and (max_staleness_ms is None or age_ms > max_staleness_ms):
            self.check_session()
        for store in worker.stores(table):
            if (found := _found(store, wanted)) is not None:
                return Row(*found, age_ms)
        if spec.windows is not None and (windows := self._windows(table, wanted)) is not None:
            return windows._replace(staleness_ms=age_ms)
        try:
            tasks = self._owners.tasks_of(table, key)
        except NoOwner as error:
            raise ServiceUnavailable(str(error)) from error
        nothing: Any = None  # what was said by who has no such row
        unsure: Any = None
        for task in tasks:
            try:
                answer = await self._of_task(task, table, wanted, max_staleness_ms, forward)
            except NoRow as error:
                nothing = error
            except ServiceUnavailable as error:
                unsure = error
            else:
                if isinstance(answer, Row) or answer.status == OK:
                    return answer
                if answer.status == NotFound.code:
                    nothing = answer
                else:
                    unsure = answer
        # A worker that was asked by another one, which asks them all, says what it knows.
        first, second = (nothing, unsure) if forward is None else (unsure, nothing)
        said = second if first is None else first
        if isinstance(said, Exception):
            raise said
        return said

    async def _of_task(
        self, task: TaskId, table: str, wanted: list[Any], max_staleness_ms: int | None, forward: Forward | None
    ) -> Any:
        worker = self._worker
        if task in worker.running:
            raise NoRow(worker.unheard_ms)
        # A copy has no list of the windows of a key: the owner answers for tables with windows.
        takes_copies = max_staleness_ms is not None and worker.app.all_tables()[table].windows is None
        if takes_copies and max_staleness_ms is not None and (copy := worker.copy(task)) is not None:
            age_ms = self._age_ms(copy.whole_at)
            if age_ms <= max_staleness_ms:
                if (found := _found_in_copy(copy.stores[table], wanted)) is None:
                    raise NoRow(age_ms)
                return Row(*found, age_ms)
        return await self._elsewhere(task, takes_copies, forward)

    def check_session(self) -> None:
        """Raises ServiceUnavailable where another worker may have the rows that are here."""
        try:
            self._owners.check_session()
        except NoOwner as error:
            raise ServiceUnavailable(str(error)) from error

    def _global(self, table: str, wanted: list[Any], max_staleness_ms: int | None) -> Row:
        whole_at = self._worker.global_table_whole_at(table)
        if whole_at is None:
            raise ServiceUnavailable(f"global table {table} is not read to its end yet")
        age_ms = self._age_ms(whole_at)
        if max_staleness_ms is not None and age_ms > max_staleness_ms:
            raise ServiceUnavailable(f"global table {table} is {age_ms} ms behind what is committed")
        [store] = self._worker.stores(table)
        if (found := _found(store, wanted)) is None:
            raise NoRow(age_ms)
        return Row(*found, age_ms)

    def _windows(self, table: str, wanted: list[Any]) -> Row | None:
        for run in self._worker.running.values():
            if table not in run.task.stores:
                continue
            opened = run.task.windows_of(table)
            for key in wanted:
                if starts := opened.starts(key):
                    return Row(key, [{"start_ms": at, "value": opened.get(key, at)} for at in starts], 0)
        return None

    async def _elsewhere(self, task: TaskId, takes_copies: bool, forward: Forward | None) -> Any:
        owner: str | None = None
        try:
            owner = self._owners.url_of(task)
            reason = ServiceUnavailable(f"the key has gone to {owner}: try again later")
        except NoOwner as error:
            reason = ServiceUnavailable(str(error))
        if task in self._worker.restoring:
            reason = ServiceUnavailable(f"task {task}, which has the key, restores its tables here")
        if forward is None:
            raise reason
        copies = self._worker.told.copy_owners.get(task, ()) if takes_copies else ()
        for url in dict.fromkeys(url for url in (owner, *copies) if url and url != self._worker.url):
            try:
                answer = await forward(url)
            except ServiceUnavailable as error:
                reason = error
                continue
            if answer.status != ServiceUnavailable.code or url != owner or not copies:
                return answer
            reason = ServiceUnavailable(f"{url}, which has the key, cannot answer yet, nor can a standby")
        raise reason

    def _age_ms(self, whole_at: float) -> int:
        return max(0, round((asyncio.get_running_loop().time() - whole_at) * 1000))


def _found(store: HasRows, wanted: list[Any]) -> tuple[Any, Any] | None:
    return next(((key, store.rows[key]) for key in _usable(wanted) if key in store.rows), None)


def _found_in_copy(store: Store, wanted: list[Any]) -> tuple[Any, Any] | None:
    for key in _usable(wanted):
        with contextlib.suppress(KeyError, TypeError, ValueError, AppError):  # no row, or no key of this table
            return key, store.look(key)
    return None


def _usable(wanted: list[Any]) -> Iterator[Any]:
    """What can be a key."""
    for each in wanted:
        try:
            hash(each)
        except TypeError:
            continue
        yield each
