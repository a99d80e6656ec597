"""Finds the rows of a table that the code which runs now is about: those of its task, or of all tasks of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.stores.global_store import GlobalStore
from ..engine.stores.store import Store
from ..engine.tables import TableSpec
from ..engine.task import Work
from ..errors import AppError
from .host import Hosted
from .union import UnionStore
from .work import current_work


class TableLike:
    """What an agent uses as a table. recover_callbacks: called when its rows are there."""

    spec: TableSpec
    recover_callbacks: list[Callable[[], Any]]


def changelog_topic_name(spec: TableSpec, app: Hosted | None) -> str:
    if app is None:
        raise AppError(f"table {spec.name} is of no app")
    return app.changelog_topic(spec.name)


def work_in_hand(spec: TableSpec) -> tuple[Work, Store]:
    """Raises AppError outside of an agent, and where the agent's task does not have the table."""
    work = current_work.get(None)
    if work is None:
        raise AppError(
            f"table {spec.name} is used outside of an agent, where there is no event whose time selects a window: "
            "rows() has all of them"
        )
    return work, _of_task(spec, work)


def _of_task(spec: TableSpec, work: Work) -> Store:
    try:
        return work.task.stores[spec.name]
    except KeyError:
        raise AppError(
            f"table {spec.name} is used by an agent whose code does not show it, in task {work.task.id}: name it at "
            f"the agent, @app.agent(topic, tables=[{spec.name}])"
        ) from None


def global_rows(spec: TableSpec, app: Hosted | None) -> GlobalStore | UnionStore:
    """In an agent: a global table's rows. Elsewhere, and in agents of channels, which have no checkpoints: the same for
    reading. Raises AppError where no worker runs."""
    found = None if app is None else app.global_stores.get(spec.name)
    if found is None:
        raise AppError(f"table {spec.name} is used where no worker of its app runs: workers have its rows")
    work = current_work.get(None)
    return UnionStore(spec, [found]) if work is None or work.outputs is None else found


def rows_at_hand(spec: TableSpec, app: Hosted | None) -> Store | UnionStore:
    """In an agent: its task's rows. Elsewhere, as in a timer or a page: those of all tasks of this worker, for reading.
    Raises AppError where no worker runs, and where the agent's task does not have the table."""
    work = current_work.get(None)
    if work is not None:
        return _of_task(spec, work)
    if app is None or app.worker is None:
        raise AppError(
            f"table {spec.name} is used outside of an agent, and no worker of its app runs here: its rows are in "
            "workers, and in its changelog"
        )
    return UnionStore(spec, app.worker.stores(spec.name))
