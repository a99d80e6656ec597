"""What a worker refuses before it joins its group: state of other code, and changelogs that lose rows."""

import pytest

from isthmus.streams import AppError, ChangeRefused
from isthmus.streams.engine.changes import Written
from tests.running import in_loop, run_by

from .world import World, left_by


@run_by(in_loop)
async def test_state_of_other_code_keeps_a_worker_from_starting(monkeypatch):
    world = World(monkeypatch)
    world.written = Written({"seen": {0: left_by(1), 1: left_by(2)}}, {"seen": 2})
    with pytest.raises(ChangeRefused, match="table seen has rows of version 2"):
        await world.start()
    assert world.journal.done == [] and world.created == []
    await world.end()


@run_by(in_loop)
async def test_a_changelog_whose_rows_would_be_deleted_is_refused(monkeypatch):
    for policy in ("delete", "compact,delete"):
        world = World(monkeypatch)
        world.policy = policy
        with pytest.raises(AppError, match=rf"app-seen-changelog has cleanup.policy={policy}.*topic alter"):
            await world.start()
        await world.end()
