"""What is done for all logs of a directory now and then: saves, retention, flush.ms."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import ManagerConfig
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.core_broker.ticked import TickedPauses
from tests.running import in_loop, run_by

from ..directories import TOPIC_ID, manager, names, opened
from ..support import NOW_MS, BrokenFiles, append, batch


@run_by(in_loop)
async def test_one_task_saves_flushes_and_retains(tmp_path):
    files = BrokenFiles()
    now = [NOW_MS]
    config = ManagerConfig(checkpoint_interval_ms=20, high_watermark_interval_ms=20, retention_interval_ms=20)
    async with opened(files, tmp_path, config=config, wall_ms=lambda: now[0]) as made:
        flushed = await made.create("f", 0, TOPIC_ID, LogConfig(flush_ms=1000))
        kept = await made.create("k", 0, TOPIC_ID, LogConfig(segment_bytes=100, retention_ms=1000))
        made.start()
        made.start()
        for log in (flushed, kept):
            append(log, batch(1))
            append(log, batch(1))
        now[0] += 1001
        for _ in range(500):
            await asyncio.sleep(0.01)
            if flushed.recovery_point == 2 and kept.log_start_offset == 2:
                break
        assert (flushed.recovery_point, kept.log_start_offset) == (2, 2)
        text = ""
        for _ in range(500):
            await asyncio.sleep(0.01)
            text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
            if "f 0 2" in text:
                break
        assert "f 0 2" in text


@pytest.mark.parametrize(("interval_ms", "first_s"), [(300_000, 30), (20_000, 20)])
@run_by(in_loop)
async def test_retention_comes_first_half_a_minute_after_a_start_or_after_its_interval(
    files, tmp_path, interval_ms, first_s
):
    never = 10**9
    config = ManagerConfig(
        checkpoint_interval_ms=never,
        log_start_interval_ms=never,
        high_watermark_interval_ms=never,
        retention_interval_ms=interval_ms,
    )
    async with opened(files, tmp_path, config=config) as made:
        pauses = made.duties._pauses = TickedPauses()
        made.start()
        while not pauses.is_pausing:
            await asyncio.sleep(0)
        assert max(pauses.lengths_s) == pytest.approx(first_s, abs=5)


@run_by(in_loop)
async def test_retention_of_one_log_that_fails_does_not_stop_the_others(files, tmp_path):
    async with opened(files, tmp_path) as made:
        logs = []
        for index in range(2):
            log = await made.create("t", index, TOPIC_ID, LogConfig(segment_bytes=100, retention_ms=0))
            append(log, batch(1, timestamp=5))
            logs.append(log)
        logs[0].tail.failure = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
        await made.enforce_retention()
        assert [log.log_start_offset for log in logs] == [0, 1]


@run_by(in_loop)
async def test_retention_that_waited_while_its_topic_was_deleted_does_not_touch_the_next_of_its_name(files, tmp_path):
    made = manager(files, tmp_path)
    await made.open(1)
    old = await made.create("t", 0, bytes(16), LogConfig(retention_ms=1))
    append(old, batch(3, timestamp=1))
    await old.locks.maintenance.acquire()  # as a long sync does
    retaining = asyncio.ensure_future(old.enforce_retention(3, NOW_MS))
    await asyncio.sleep(0)
    deleting = asyncio.ensure_future(made.delete("t", 0))
    await asyncio.sleep(0)
    assert made.get("t", 0) is None
    old.locks.maintenance.release()
    with pytest.raises(KafkaError):
        await retaining
    await deleting
    new = await made.create("t", 0, b"\2" * 16, LogConfig())
    append(new, batch(2))
    assert "00000000000000000000.log" in names(tmp_path / "t-0")
    await made.close()


@run_by(in_loop)
async def test_flush_ms_is_kept_when_the_clock_goes_back(files, tmp_path):
    clock = [NOW_MS]
    made = manager(files, tmp_path, wall_ms=lambda: clock[0])
    await made.open(1)
    log = await made.create("t", 0, TOPIC_ID, LogConfig(flush_ms=1000))
    append(log, batch(3))
    clock[0] = NOW_MS + 999
    await made.duties.flush_old()
    assert log.recovery_point == 0
    clock[0] = NOW_MS - 3_600_000
    await made.duties.flush_old()
    assert log.recovery_point == 3
    await made.close()
