"""Planted bugs of the group coordinator; `controls.py` has how they are used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


def commits_of_anybody(stack: contextlib.ExitStack) -> None:
    """Whoever says a generation may commit, though others own the partition now."""
    from isthmus.core_broker.coordinators.group import Group
    from isthmus.protocol.errors import ErrorCode

    real = Group.check_commit

    def check(self: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return ErrorCode.NONE if generation >= 0 else real(self, member_id, instance_id, generation)

    _replace(stack, Group, "check_commit", check)


def commits_answered_before_they_are_safe(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
    from isthmus.protocol.errors import ErrorCode

    def answer(self: Any, shard: Any, respond: Callable[[ErrorCode], Any], timeout_ms: int) -> Any:
        return respond(ErrorCode.NONE)

    _replace(stack, CoordinatorRuntime, "answer", answer)


def deletions_answered_before_they_are_safe(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators import groups

    _replace(stack, groups, "when_acknowledged", lambda ends, acks, settle, *_: _settled_at_once(settle))


def _settled_at_once(settle: Callable[[], Any]) -> Any:
    response = settle()
    for result in response.results:
        result.error_code = 0
    return response


def members_not_awaited_after_a_restart(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators.group import Group

    _replace(stack, Group, "loaded", lambda self: None)


def generation_not_read(stack: contextlib.ExitStack) -> None:
    """A coordinator that has come back counts from what it has stored, less one."""
    from isthmus.core_broker.coordinators.group import Group

    real = Group.load

    def load(self: Group, value: Any) -> None:
        real(self, value)
        self.generation.number = max(self.generation.number - 1, 0)

    _replace(stack, Group, "load", load)


def expiry_decided_early(stack: contextlib.ExitStack) -> None:
    """What is too old is looked for, and removed a moment later, whatever was committed between."""
    from isthmus.core_broker.coordinators.group_host import GroupHost

    real = GroupHost._remove

    def remove(self: Any, shard: Any, tombstones: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, real, self, shard, tombstones)

    _replace(stack, GroupHost, "_remove", remove)


PLANTS: dict[str, Plant] = {
    "commits-answered-before-they-are-safe": commits_answered_before_they_are_safe,
    "commits-of-anybody": commits_of_anybody,
    "deletions-answered-before-they-are-safe": deletions_answered_before_they_are_safe,
    "expiry-decided-early": expiry_decided_early,
    "generation-not-read": generation_not_read,
    "members-not-awaited-after-a-restart": members_not_awaited_after_a_restart,
}
