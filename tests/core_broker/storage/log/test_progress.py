"""How far a log is on disk and compacted: the owner hears of each change; locks are made when they are needed."""

from __future__ import annotations

from typing import Any

from isthmus.core_broker.storage.log.progress import LogLocks
from isthmus.core_broker.storage.log.status import LogHooks

from ..support import append, batch, open_log, run


def test_the_owner_hears_of_each_change(files: Any, tmp_path: Any) -> None:
    log = open_log(files, tmp_path)
    changes: list[str] = []
    log.status.hooks = LogHooks(on_change=lambda status: changes.append(status.name))
    log.progress.recovery_point = 3
    log.progress.first_dirty_offset = 2
    assert (log.recovery_point, log.progress.first_dirty_offset, changes) == (3, 2, ["t-0", "t-0"])


def test_what_is_not_on_disk_is_known_until_a_sync(files: Any, tmp_path: Any) -> None:
    log = open_log(files, tmp_path)
    assert log.is_on_disk and log.progress.unsynced_since_ms is None
    append(log, batch(2))
    assert not log.is_on_disk and log.progress.unsynced_since_ms is not None
    run(log.sync())
    assert log.is_on_disk and log.progress.unsynced_since_ms is None and not log.progress.is_cut
    run(log.truncate_to(0))
    assert log.progress.is_cut
    run(log.sync())
    assert not log.progress.is_cut


def test_a_lock_is_made_once() -> None:
    locks = LogLocks()
    assert locks.maintenance is locks.maintenance and locks.cleaning is locks.cleaning
    assert locks.maintenance is not locks.cleaning
