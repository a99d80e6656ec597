"""What a worker refuses before it joins its group: state of other code, and changelogs that lose rows. And what it does
about an input that grows."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams import AppError, ChangeRefused
from isthmus.streams.engine.changes import Written
from isthmus.streams.engine.described import BRIDGED_BY
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .world import CHANGELOG, ONE, OTHER, World, left_by


@run_by(in_loop)
async def test_state_of_other_code_keeps_a_worker_from_starting(monkeypatch):
    world = World(monkeypatch)
    world.written = Written({"seen": {0: left_by(1), 1: left_by(2)}}, {"seen": 2})
    with pytest.raises(ChangeRefused, match="table seen has rows of version 2"):
        await world.start()
    assert world.journal.done == [] and world.created == []
    await world.end()


@run_by(in_loop)
async def test_records_that_would_be_brought_to_other_tasks_keep_a_worker_from_starting(monkeypatch):
    world = World(monkeypatch)
    by_another_rule = replace(left_by(1), topology={BRIDGED_BY: "consistent"})
    world.written = Written({"seen": {0: by_another_rule}}, {"seen": 5})  # the input has fewer partitions
    with pytest.raises(ChangeRefused, match=r"by partitioner consistent, and would bring by murmur2"):
        await world.start()
    await world.end()


@run_by(in_loop)
async def test_a_changelog_whose_rows_would_be_deleted_is_refused(monkeypatch):
    for policy in ("delete", "compact,delete"):
        world = World(monkeypatch)
        world.policy = policy
        with pytest.raises(AppError, match=rf"app-seen-changelog has cleanup.policy={policy}.*topic alter"):
            await world.start()
        await world.end()


@pytest.mark.parametrize("asked", [3, 100])
@run_by(in_virtual_time)
async def test_a_changelog_that_another_worker_has_just_made_is_waited_for(loop, /, monkeypatch, asked):
    """The broker that is asked may not have heard of it; after a while it is not just made."""
    world = World(monkeypatch)
    known, answers = world.describe_configs, [KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, CHANGELOG)] * asked

    async def describe_configs(topics: Sequence[str]) -> dict[str, list[Any]]:
        if answers:
            raise answers.pop()
        return await known(topics)

    monkeypatch.setattr(world, "describe_configs", describe_configs)
    if asked == 3:
        await world.start()
    else:
        with pytest.raises(KafkaError, match=CHANGELOG):
            await world.start()
    await world.end()


@run_by(in_loop)
async def test_an_input_that_has_grown_is_seen_at_the_rebalance(monkeypatch):
    """Who has nothing to commit looks nowhere else."""
    world = World(monkeypatch, interval_s=1e9)
    await world.start(ONE)
    world.group.ends = {ONE: 3}
    await world.until(lambda: world.worker.processed_total == 3)
    known: Any = SimpleNamespace(leaders=dict.fromkeys(range(3), 1), topic_id=world.client.topics["in"].topic_id)
    world.client.topics["in"] = known
    world.group.rebalance("assign", OTHER)
    await world.until(lambda: "app-in-copartitioned" in world.created)
    assert world.worker.layout.tables == {"seen": 2}
    assert (world.position(), world.worker.running) == (0, {}), "what was read since is read again"
    await world.end()
