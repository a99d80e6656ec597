"""Writes records that an app leaves out to its dead-letter topic (KIP-1034's headers)."""

from __future__ import annotations

from ..api.outgoing import Outgoing
from ..api.topics import Outbox, Topic
from ..engine.failures import DEAD_LETTER, dead_letter_headers
from ..engine.task import Task
from .task_run import LeftOut


async def write_dead_letter(outbox: Outbox, topic: Topic, task: Task, left_out: LeftOut) -> None:
    """To `topic`, with the task's checkpoint, if that is the record's policy."""
    where, raw, problem, policy, by = left_out
    if policy != DEAD_LETTER:
        return
    headers = dead_letter_headers(raw.headers, where, task.partition, raw.offset, problem, by or "decoding")
    timestamp_ms = raw.timestamp_ms if raw.timestamp_ms >= 0 else None
    await outbox.send(task, Outgoing(topic, raw.key, raw.value, None, timestamp_ms, headers))
