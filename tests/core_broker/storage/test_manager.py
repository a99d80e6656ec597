"""A data directory: whose it is, what its small files say, and which starts believe them."""

from __future__ import annotations

import errno
import gc
import itertools
import os

import pytest

from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.primitives import uuid_to_str
from tests.running import in_loop, run_by

from .directories import TOPIC_ID, killed, manager, names, open_all, opened
from .support import NO_FILES, BrokenFiles, append, at, batch, run


def test_files_are_kafkas(files, tmp_path):
    async def work():
        async with opened(files, tmp_path, 3, "abcdefghijklmnopqrstuw") as made:
            for topic, index in (("b", 0), ("a", 11), ("a", 2)):
                log = await made.create(topic, index, TOPIC_ID, LogConfig())
                for _ in range(index + 1):
                    append(log, batch(1))
            made.logs["a", 11].advance_start(4)
            made.high_watermark_of = lambda topic, index: 1 if topic == "b" else None
        return made

    made = run(work())
    properties = (tmp_path / "meta.properties").read_text().splitlines()
    assert properties[1:] == [
        "cluster.id=abcdefghijklmnopqrstuw", f"directory.id={made.directory_id}", "node.id=3", "version=1",
        "isthmus.format=1",
    ]  # fmt: skip
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n3\na 2 3\na 11 12\nb 0 1\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n3\na 2 0\na 11 4\nb 0 0\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n3\na 2 3\na 11 12\nb 0 1\n"
    stored = (tmp_path / "a-2" / "partition.metadata").read_text()
    assert stored == f"version: 0\ntopic_id: {uuid_to_str(TOPIC_ID)}"
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@run_by(in_loop)
async def test_ids_are_made_once_and_kept(files, tmp_path):
    async with opened(files, tmp_path) as first:
        pass
    async with opened(files, tmp_path) as second:
        assert (first.cluster_id, first.directory_id) == (second.cluster_id, second.directory_id)
        assert len(first.cluster_id) == 22


@run_by(in_loop)
async def test_a_directory_of_partitions_that_lost_its_identity_gets_no_new_one(files, tmp_path):
    async with opened(files, tmp_path) as made:
        await made.create("t", 0, TOPIC_ID, LogConfig())
    (tmp_path / "meta.properties").unlink()
    before = names(tmp_path)
    with pytest.raises(KafkaError, match=r"has no meta\.properties, though it has t-0"):
        await manager(files, tmp_path).open(1)
    assert names(tmp_path) == before
    (tmp_path / "t-0").rename(tmp_path / "not a partition")
    async with opened(files, tmp_path):
        pass


@pytest.mark.parametrize(("node_id", "cluster_id", "what"), [(2, None, "node 1"), (1, "other", "cluster")])
@run_by(in_loop)
async def test_directory_of_another_node_or_cluster_is_refused(files, tmp_path, node_id, cluster_id, what):
    async with opened(files, tmp_path):
        pass
    with pytest.raises(KafkaError, match=what):
        await manager(files, tmp_path).open(node_id, cluster_id)
    async with opened(files, tmp_path):  # and the lock was given back
        pass


@run_by(in_loop)
async def test_directory_in_use_is_refused(files, tmp_path):
    async with opened(files, tmp_path):
        with pytest.raises(KafkaError, match="in use by another process"):
            await manager(files, tmp_path).open(1)


def test_directory_that_cannot_be_written_is_named(tmp_path):
    files = BrokenFiles()

    def trap(kind, path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    files.trap = trap
    with pytest.raises(KafkaError, match="Read-only file system") as caught:
        run(manager(files, tmp_path / "data").open(1))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert str(tmp_path / "data") in caught.value.message


@run_by(in_loop)
async def test_logs_come_back_with_their_offsets(files, tmp_path):
    async with opened(files, tmp_path) as made:
        log = await made.create("t", 0, TOPIC_ID, LogConfig())
        for _ in range(9):
            append(log, batch(1))
        log.advance_start(4)
        assert await made.create("t", 0, TOPIC_ID, LogConfig()) is log
    async with opened(files, tmp_path) as made:
        assert made.was_clean
        assert made.found() == [("t", 0)]
        assert made.topic_id("t", 0) == TOPIC_ID
        assert made.checkpoints.high_watermarks.get(("t", 0)) == 9
        log = made.get("t", 0)
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (4, 9, 9)


@pytest.mark.parametrize(
    ("of", "clean"),
    [
        *itertools.product(("*.log", "*.index", "*.timeindex", "leader-epoch*", "*.metadata"), (True, False)),
        ("*.snapshot", True),  # a start after a kill removes one that is behind the recovery point, whatever it is
    ],
)
@run_by(in_loop)
async def test_a_log_is_offline_with_a_fifo_in_place_of_a_file_and_the_others_are_served(files, tmp_path, of, clean):
    async with opened(files, tmp_path, logs=False) as made:
        for index in (0, 1):
            log = await made.create("t", index, TOPIC_ID, LogConfig())
            append(log, batch(3, producer_id=7, producer_epoch=0, base_sequence=0))
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    [path] = (tmp_path / "t-0").glob(of)
    path.rename(tmp_path / "aside")
    told = {}
    with NO_FILES["FIFO"](path):
        async with opened(files, tmp_path, logs=False) as made:
            jobs = [LogToOpen("t", index, TOPIC_ID, LogConfig()) for index in (0, 1)]
            await made.open_logs(jobs, lambda each, log: told.update({each.partition: log}))
    assert told[1].log_end_offset == 3
    assert told[0].code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"cannot open {path}: a FIFO is in its place: move it away" in told[0].message
    (tmp_path / "aside").rename(path)
    async with opened(files, tmp_path) as made:
        assert made.logs["t", 0].log_end_offset == 3


@run_by(in_loop)
async def test_marker_is_believed_once(files, tmp_path):
    async with opened(files, tmp_path) as made:
        await made.create("t", 0, TOPIC_ID, LogConfig())
    made = manager(files, tmp_path)
    await made.open(1)
    assert made.was_clean
    killed(made)
    made = manager(files, tmp_path)
    await made.open(1)
    assert not made.was_clean
    killed(made)


@run_by(in_loop)
async def test_no_marker_while_a_log_is_in_doubt(files, tmp_path):
    made = manager(files, tmp_path)
    await made.open(1)
    append(await made.create("t", 0, TOPIC_ID, LogConfig()), batch(1))
    killed(made)
    # It is not opened this time: a clean shutdown of the others says nothing of it.
    async with opened(files, tmp_path, logs=False) as made:
        await made.create("u", 0, TOPIC_ID, LogConfig())
    assert ".kafka_cleanshutdown" not in names(tmp_path)
    async with opened(files, tmp_path) as made:
        made.logs["t", 0].tail.failure = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
    assert ".kafka_cleanshutdown" not in names(tmp_path)


@run_by(in_loop)
async def test_torn_tail_is_found_after_a_kill_not_looked_for_after_a_clean_shutdown(files, tmp_path):
    made = manager(files, tmp_path)
    await made.open(1)
    log = await made.create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(5):
        append(log, batch(1))
    await log.sync()
    await made.checkpoints.save()
    append(log, batch(1))
    killed(made)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    async with opened(files, tmp_path) as made:
        log = made.get("t", 0)
        assert (log.log_end_offset, log.recovery_point) == (5, 5)
        assert log.recovery_notes


@pytest.mark.parametrize("is_new", [True, False])
@run_by(in_loop)
async def test_producer_is_told_when_a_power_cut_has_taken_all_of_its_log(files, tmp_path, is_new):
    def following(sequence):
        return batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence)

    made = manager(files, tmp_path)
    await made.open(1)
    if not is_new:
        append(await made.create("t", 0, TOPIC_ID, LogConfig()), following(0))
        for path in (tmp_path / "t-0").glob("0*"):
            path.unlink()
    killed(made)
    again = manager(files, tmp_path)
    await again.open(1)
    log = await again.create("t", 0, TOPIC_ID, LogConfig())
    if is_new:
        assert append(log, following(1)).first_offset == 0  # as in Kafka: all of it may have been deleted
    else:
        with pytest.raises(KafkaError, match="lost in a crash"):
            append(log, following(1))
    await again.close()


@pytest.mark.parametrize("left", [b"", b"version: 0", bytes(43)])
@run_by(in_loop)
async def test_partition_whose_name_a_power_cut_has_torn_is_named_again(files, tmp_path, left):
    made = manager(files, tmp_path)
    await made.open(1)
    await made.create("t", 0, TOPIC_ID, LogConfig())
    killed(made)
    path = tmp_path / "t-0" / "partition.metadata"
    before = path.read_bytes()
    path.write_bytes(left)
    again = manager(files, tmp_path)
    await again.open(1)
    await again.create("t", 0, TOPIC_ID, LogConfig())
    assert path.read_bytes() == before
    await again.close()


@pytest.mark.parametrize(("clean", "jobs"), [(True, 1), (False, 6)])
@run_by(in_loop)
async def test_after_a_crash_the_threads_share_the_logs_one_by_one(files, tmp_path, clean, jobs):
    async with opened(files, tmp_path) as made:
        for index in range(6):
            append(await made.create("t", index, TOPIC_ID, LogConfig()), batch(1))
    if not clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    again = manager(files, tmp_path)
    await again.open(1)
    given = []
    real = files.run
    files.run = lambda fn, *args: given.append(fn) or real(fn, *args)
    await open_all(again, again.found())
    files.run = real
    assert len(given) == jobs
    assert {log.log_end_offset for log in again.logs.values()} == {1}
    await again.close()


@run_by(in_loop)
async def test_deleted_log_is_gone_and_a_new_one_of_its_name_is_not_vouched_for(files, tmp_path):
    async with opened(files, tmp_path) as made:
        log = await made.create("t", 0, TOPIC_ID, LogConfig())
        for _ in range(9):
            append(log, batch(1))
        await log.sync()
        await made.checkpoints.save()
        part = log.read(0, 100)
        await made.delete("t", 0)
        assert "t-0" not in names(tmp_path)
        assert "t 0" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()
        assert len(part.ranges[0].read()) == 100
        with pytest.raises(KafkaError):
            append(log, batch(1))
        again = await made.create("t", 0, bytes(16), LogConfig())
        assert (again.log_end_offset, again.recovery_point) == (0, 0)
        await made.delete("nobody", 0)


def test_deleted_logs_close_their_files_unless_somebody_reads_them(tmp_path):
    files = RealFiles(2, max_open=8)

    def descriptors() -> int:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum(os.path.lexists(link) and os.readlink(link).startswith(f"{tmp_path}/t-") for link in links)

    async def work():
        async with opened(files, tmp_path) as made:
            keys = [("t", index) for index in range(20)]
            for key in keys:
                append(await made.create(*key, TOPIC_ID, LogConfig()), batch(1))
            part = made.get("t", 3).read(0, 1000).ranges[0]
            logs = list(made.logs.values())  # as a fetch session refers to them
            gc.collect()
            gc.disable()  # they must not wait for it
            try:
                await made.delete_logs(keys)
                assert all(name.endswith("-delete") for name in names(tmp_path) if name.startswith("t-"))
                assert descriptors() == 1
                assert part.read() == at(batch(1), 0)
                del part
                assert descriptors() == 0 and all(log.failure for log in logs)
            finally:
                gc.enable()

    run(work())
    files.close()


@run_by(in_loop)
async def test_directory_that_nobody_knows_is_kept_under_another_name(files, tmp_path):
    async with opened(files, tmp_path) as made:
        for topic in ("known", "gone", "broken"):
            append(await made.create(topic, 0, TOPIC_ID, LogConfig()), batch(1))
    async with opened(files, tmp_path, logs=False) as made:
        await open_all(made, [("known", 0)])
        (name,) = await made.set_aside(lambda topic, index: topic == "gone")
        assert name.startswith("gone-0.") and name.endswith("-stray")
        assert (tmp_path / name / "00000000000000000000.log").stat().st_size == len(batch(1))
        assert made.found() == [("broken", 0), ("known", 0)]
    async with opened(files, tmp_path) as made:
        assert sorted(made.logs) == [("broken", 0), ("known", 0)]
        assert made.was_clean


@pytest.mark.parametrize("is_known_to_be_deleted", [False, True])
@run_by(in_loop)
async def test_directory_that_names_another_topic_is_kept_unless_that_was_deleted(
    files, tmp_path, caplog, is_known_to_be_deleted
):
    """It was deleted in either case: two directories whose names were swapped were empty after a start."""
    other = bytes(range(16, 32))
    async with opened(files, tmp_path) as made:
        append(await made.create("t", 0, other, LogConfig()), batch(1))
    async with opened(files, tmp_path, logs=False) as made:
        made.removed = {other: None} if is_known_to_be_deleted else {}
        log = await made.create("t", 0, TOPIC_ID, LogConfig())
        assert log.log_end_offset == 0 and made.topic_id("t", 0) == TOPIC_ID
        aside = [name for name in names(tmp_path) if name.startswith("t-0.")]
        if is_known_to_be_deleted:
            assert aside == [] or aside[0].endswith("-delete")
            return
        (kept,) = aside
        assert kept.endswith("-stray")
        assert f"t-0 names another topic, {uuid_to_str(other)}; kept as {kept}" in caplog.text
    assert (tmp_path / kept / "00000000000000000000.log").stat().st_size == len(batch(1))
    assert "t 0 0" in (tmp_path / "recovery-point-offset-checkpoint").read_text()  # nothing vouches for the new one


@run_by(in_loop)
async def test_a_directory_that_cannot_be_kept_aside_is_not_taken_by_another_topic(tmp_path):
    files = BrokenFiles()

    def refuse(kind, path):
        if kind == "rename" and path.endswith("/t-0"):
            raise OSError(errno.EIO, "broken")

    async with opened(files, tmp_path) as made:
        append(await made.create("t", 0, bytes(range(16, 32)), LogConfig()), batch(1))
    async with opened(files, tmp_path, logs=False) as made:
        files.trap = refuse
        with pytest.raises(KafkaError, match="cannot rename"):
            await made.create("t", 0, TOPIC_ID, LogConfig())
        files.trap = lambda kind, path: None
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size == len(batch(1))


@run_by(in_loop)
async def test_longest_topic_name_can_be_deleted(files, tmp_path):
    async with opened(files, tmp_path) as made:
        await made.create("t" * 249, 12345, TOPIC_ID, LogConfig())
        await made.delete("t" * 249, 12345)
        (name,) = [name for name in names(tmp_path) if name.startswith("t")]
        assert name.endswith("-delete") and len(name) == 255
