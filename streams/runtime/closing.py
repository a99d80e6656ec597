"""Closes windows of tables, between two batches of a task: each is given to the table's `on_window_close` and removed.

Both are in the checkpoint that has the events which closed the window. So with exactly_once what the function sends
counts once; after a crash with at_least_once it may be called again for a window, as an agent is for an event.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..api.windows import span
from ..api.work import current_work
from ..engine.task import Task, Work
from ..errors import RecordError, StreamsError

TURN_ROWS = 1_000  # rows that are closed before the loop has a turn


async def close_windows(task: Task) -> None:
    """Raises RecordError for what `on_window_close` raises: the task goes on from its last checkpoint then."""
    for table, store in task.stores.items():
        windows = store.spec.windows
        if windows is None or windows.expires_ms is None:
            continue
        opened = task.windows_of(table)
        done = 0
        for start_ms, keys in opened.closed():
            for key in keys:
                row = (key, start_ms)
                if store.spec.on_window_close is not None and row in store.rows:
                    await _told(task, table, (key, span(start_ms, windows)), store.rows[row])
                if row in store.rows:
                    opened.delete(key, start_ms)
                done += 1
                if done % TURN_ROWS == 0:
                    await asyncio.sleep(0)


async def _told(task: Task, table: str, key: Any, value: Any) -> None:
    function = task.stores[table].spec.on_window_close
    assert function is not None
    token = current_work.set(Work(task))
    try:
        result = function(key, value)
        if inspect.isawaitable(result):
            await result
    except StreamsError:
        raise
    except Exception as error:
        raise RecordError(
            f"on_window_close of table {table} raised {type(error).__name__}: {error} for window {key!r} in task "
            f"{task.id}"
        ) from error
    finally:
        current_work.reset(token)
