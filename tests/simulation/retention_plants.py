"""Planted bugs of retention; `controls.py` has how they are used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def retention_past_the_high_watermark(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.log import retention

    real = retention.deletable

    def deletable(tail: Any, segments: Sequence[Any], high_watermark: int, wall_ms: int) -> int:
        return real(tail, segments, tail.log_end_offset, wall_ms)

    _replace(stack, retention, "deletable", deletable)


def retention_takes_one_more(stack: contextlib.ExitStack) -> None:
    """The segment that brings a log below retention.bytes goes as well."""
    from isthmus.core_broker.storage.log import retention

    real = retention.deletable

    def deletable(tail: Any, segments: Sequence[Any], high_watermark: int, wall_ms: int) -> int:
        count = real(tail, segments, high_watermark, wall_ms)
        more = count + 1 < len(segments) and segments[count + 1].base_offset <= high_watermark
        return count + 1 if count and more else count

    _replace(stack, retention, "deletable", deletable)


def retention_from_the_newest_on(stack: contextlib.ExitStack) -> None:
    """A crash in the middle of it leaves a hole."""
    from isthmus.core_broker.storage.log import retention

    real = retention.remove_segments

    def remove(files: Any, directory: str, segments: list[Any], start: int) -> None:
        real(files, directory, segments[::-1], start)

    _replace(stack, retention, "remove_segments", remove)


def deleted_records_come_back(stack: contextlib.ExitStack) -> None:
    """A log's new start is told before it is saved anywhere."""
    from isthmus.core_broker.storage.startup.checkpoints import Checkpoints

    async def save(self: Checkpoints) -> None:
        pass

    _replace(stack, Checkpoints, "save_log_starts", save)


def retention_never(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.storage.log import retention

    _replace(stack, retention, "deletable", lambda tail, segments, high_watermark, wall_ms: 0)


PLANTS: dict[str, Plant] = {
    "deleted-records-come-back": deleted_records_come_back,
    "retention-from-the-newest-on": retention_from_the_newest_on,
    "retention-never": retention_never,
    "retention-past-the-high-watermark": retention_past_the_high_watermark,
    "retention-takes-one-more": retention_takes_one_more,
}
