"""A log's status: what takes it offline, and what its owner hears of it."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.log.status import LogHooks, LogStatus
from isthmus.protocol.errors import ErrorCode, KafkaError

from ..support import open_log, run


@pytest.fixture
def status(files: Any, tmp_path: Any) -> LogStatus:
    return open_log(files, tmp_path).status


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/data/t-0/file")


def heard(status: LogStatus, *names: str) -> list[str]:
    """What reaches the owner from now on, by the names of its hooks."""
    calls: list[str] = []
    status.hooks = LogHooks(**{name: (lambda *_, name=name: calls.append(name)) for name in names})
    return calls


def test_a_refusal_that_may_pass_leaves_the_log_online(status: LogStatus) -> None:
    for number in (errno.ENOSPC, errno.EMFILE, errno.ENOENT):
        assert isinstance(status.refuse(error(number), "cannot read from"), StorageError)
        status.check_online()


def test_a_refusal_that_does_not_pass_takes_it_offline_and_each_raise_has_an_error_of_its_own(
    status: LogStatus,
) -> None:
    raised = status.refuse(error(errno.EIO), "cannot read from")
    seen: list[KafkaError] = []
    for _ in range(2):
        with pytest.raises(KafkaError, match="cannot read from /data/t-0/file") as caught:
            status.check_online()
        seen.append(caught.value)
    assert seen[0] is not seen[1] and raised not in seen
    assert {each.code for each in seen} == {ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize(
    ("number", "hooks", "expected"),
    [
        (errno.EIO, ("on_failure", "on_broken"), ["on_broken"]),
        (errno.ENOSPC, ("on_failure", "on_broken"), ["on_failure"]),
        (errno.ENOSPC, ("on_broken",), ["on_broken"]),  # an owner that cannot open it again
    ],
)
def test_the_owner_hears_once_that_a_log_is_offline(
    status: LogStatus, number: int, hooks: tuple[str, ...], expected: list[str]
) -> None:
    calls = heard(status, *hooks)
    for _ in range(2):
        status.fail(error(number), "cannot sync")
    assert calls == expected


def test_a_closed_log_keeps_the_failure_that_it_had(status: LogStatus) -> None:
    status.fail(error(errno.EIO), "cannot sync")
    status.abandon()
    with pytest.raises(KafkaError, match="cannot sync"):
        status.check_online()


def test_changes_and_rolls_reach_the_owner_and_without_hooks_nobody(status: LogStatus) -> None:
    status.changed()
    status.rolled()
    run(status.save_points())
    calls = heard(status, "on_change", "on_roll")
    status.changed()
    status.rolled()
    assert calls == ["on_change", "on_roll"]
