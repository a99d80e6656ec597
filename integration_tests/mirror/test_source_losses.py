"""What a mirror's source has lost, from outside: topics gone or made anew, records deleted, older copies restored. Each
is a state with its words, and the copy stays as it is until someone decides.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
from pathlib import Path

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.console.commands import error, isthmus
from isthmus.client import Admin, TopicPartition
from isthmus.client.raw import append_raw
from isthmus.protocol import records

from .topics import create, produce, reaches
from .workers import Worker, clients, log_bytes, mirror_arguments, mirror_status, run, same, until


def test_a_recreated_source_topic_is_held_until_its_copy_is_deleted(
    pair: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    source, target = pair

    async def scenario() -> None:
        async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
            await create(origin, "again")
            await produce(origin, "again", 50)
            await until(lambda: same(origin, copy, "again", [0]), "the first one")
            before = await log_bytes(copy, "src.again", 0)
            await Admin(origin).delete_topics(["again"])
            await create(origin, "again")
            await produce(origin, "again", 200)
            said = (await reaches(target.bootstrap, "again", "SOURCE_RECREATED", 6))["reason"]
            assert "delete src.again in the target" in said
            await asyncio.sleep(1)
            assert await log_bytes(copy, "src.again", 0) == before
            await Admin(copy).delete_topics(["src.again"])
            await until(lambda: same(origin, copy, "again", [0]), "the second one")
            await Admin(origin).delete_topics(["again"])
            await reaches(target.bootstrap, "again", "SOURCE_UNAVAILABLE", reason="src.again keeps what was mirrored")

    with Worker(tmp_path, "mirror", *mirror_arguments(source.bootstrap, target.bootstrap, "again")) as worker:
        run(scenario())
        assert worker.end() == 0, worker.log


def test_what_went_while_no_worker_ran_is_not_shown_as_mirrored(
    pair: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    """A topic that the source has no more, and one that the link selects no more."""
    source, target = pair
    arguments = mirror_arguments(source.bootstrap, target.bootstrap, "went,unselected", "went")
    status = functools.partial(mirror_status, target.bootstrap, "went")

    async def begin() -> None:
        async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
            for topic in ("went", "unselected"):
                await create(origin, topic)
                await produce(origin, topic, 20)
                await until(functools.partial(same, origin, copy, topic, [0]), "both are mirrored")

    async def delete() -> None:
        async with clients(source.bootstrap) as (origin,):
            await Admin(origin).delete_topics(["went"])

    async def told() -> bool:
        rows = await asyncio.to_thread(status)
        assert list(rows) == [("went", 0)], rows
        found = rows["went", 0]
        assert found["state"] == "SOURCE_UNAVAILABLE", found
        assert (found["next_offset"], found["source_high_watermark"], found["lag_records"]) == (20, None, None)
        return "src.went keeps what was mirrored" in found["reason"]

    with Worker(tmp_path, "first", *arguments) as first:
        run(begin())
        assert first.end() == 0
    assert {found["state"] for found in status().values()} == {"MIRRORING"}
    run(delete())
    with Worker(tmp_path, "second", *mirror_arguments(source.bootstrap, target.bootstrap, "went", "went")) as second:
        run(until(told, "one row is left, and it says what became of its source"))
        assert second.end() == 0, second.log
    status_of_none = isthmus("mirror", "status", "wnet", "-b", target.bootstrap, folder=tmp_path)
    assert error(status_of_none).startswith("no mirror of link wnet has written into this cluster; those of ")


def test_what_the_source_deleted_before_it_was_mirrored_is_a_gap(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": 200, "log.segment.bytes": 1 << 20}
    with running_broker(tmp_path / "s", settings) as source, running_broker(tmp_path / "t") as target:
        arguments = mirror_arguments(source.bootstrap, target.bootstrap, "short")
        first, second = TopicPartition("short", 0), TopicPartition("src.short", 0)

        async def begin() -> int:
            async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                await create(origin, "short", retention_bytes=str(1 << 20), segment_bytes=str(1 << 20))
                await produce(origin, "short", 100)
                await until(lambda: same(origin, copy, "short", [0]), "the beginning")
                return (await Admin(copy).list_offsets({second: "latest"}))[second][0]

        async def pass_by(end: int) -> int:
            async with clients(source.bootstrap) as (origin,):
                await produce(origin, "short", 4000, 1000, "none")

                async def gone() -> int:
                    start = (await Admin(origin).list_offsets({first: "earliest"}))[first][0]
                    return start if start > end else 0

                return await until(gone, "retention passes the mirror")

        with Worker(tmp_path, "first", *arguments).ready() as worker:
            end = run(begin())
            assert worker.end() == 0
        run(pass_by(end))
        with Worker(tmp_path, "second", *arguments).ready():
            said = run(reaches(target.bootstrap, "short", "GAP"))

            async def still() -> int:
                async with clients(target.bootstrap) as (copy,):
                    return (await Admin(copy).list_offsets({second: "latest"}))[second][0]

            assert run(still()) == end
            assert said["reason"].startswith(f"short-0: the source deleted offsets {end} to "), said


def test_a_source_restored_from_an_older_copy_is_diverged(tmp_path: Path) -> None:
    with running_broker(tmp_path / "s") as source, running_broker(tmp_path / "t") as target:

        async def fill(count: int, create_it: bool = False) -> bytes:
            async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                if create_it:
                    await create(origin, "past")
                await produce(origin, "past", count)
                await until(lambda: same(origin, copy, "past", [0]), "the copy is the source")
                return await log_bytes(copy, "src.past", 0)

        with Worker(
            tmp_path, "mirror", *mirror_arguments(source.bootstrap, target.bootstrap, "past")
        ).ready() as worker:
            run(fill(100, True))
            source.stop()
            shutil.copytree(source.folder / "data", tmp_path / "older")
            source.start()
            before = run(fill(100))
            last = list(records.walk(before))[-1][1]
            source.kill()
            shutil.rmtree(source.folder / "data")
            shutil.copytree(tmp_path / "older", source.folder / "data")
            source.start()
            said = run(reaches(target.bootstrap, "past", "DIVERGED", 30))
            assert f"ends at offset {last.next_offset} of leader epoch {last.partition_leader_epoch}" in said["reason"]

            async def go_on() -> None:
                async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                    await produce(origin, "past", 500)
                    await asyncio.sleep(1)
                    assert await log_bytes(copy, "src.past", 0) == before

            run(go_on())
            assert worker.end() == 0


def test_a_restored_source_that_has_outgrown_its_mirror_is_diverged_too(tmp_path: Path) -> None:
    """Its new records have the leader epoch and the offsets of those it lost: only their bytes differ."""
    with running_broker(tmp_path / "s") as source, running_broker(tmp_path / "t") as target:
        arguments = mirror_arguments(source.bootstrap, target.bootstrap, "past")

        async def fill(batches: int, create_it: bool = False, mirrored: bool = True) -> bytes:
            async with clients(source.bootstrap, target.bootstrap) as (origin, copy):
                if create_it:
                    await create(origin, "past")
                for _ in range(batches):
                    batch = records.build_batch([(0, None, os.urandom(20), ())] * 10)
                    await append_raw(origin, TopicPartition("past", 0), batch)
                if mirrored:
                    await until(lambda: same(origin, copy, "past", [0]), "the copy is the source")
                return await log_bytes(copy, "src.past", 0)

        with Worker(tmp_path, "first", *arguments).ready() as first:
            run(fill(5, create_it=True))
            source.stop()
            shutil.copytree(source.folder / "data", tmp_path / "older")
            source.start()
            before = run(fill(5))
            assert first.end() == 0
        source.kill()
        shutil.rmtree(source.folder / "data")
        shutil.copytree(tmp_path / "older", source.folder / "data")
        source.start()
        run(fill(20, mirrored=False))
        with Worker(tmp_path, "second", *arguments).ready():
            said = run(reaches(target.bootstrap, "past", "DIVERGED"))
            last = list(records.walk(before))[-1][1]
            assert f"ends at offset {last.next_offset} of leader epoch {last.partition_leader_epoch}" in said["reason"]
            assert "the source's log was replaced; delete src.past in the target" in said["reason"]
            assert run(_copied(target.bootstrap, "src.past")) == before


async def _copied(bootstrap: str, topic: str) -> bytes:
    async with clients(bootstrap) as (copy,):
        return await log_bytes(copy, topic, 0)
