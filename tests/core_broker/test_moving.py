"""`isthmus broker to-kafka`: what it leaves is Kafka's, holds the same cluster, and may be done again after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.metadata_log import DIRECTORY, MetadataLog
from isthmus.core_broker.cluster.partition_image import NO_LEADER
from isthmus.core_broker.moving import METADATA_VERSION, CannotMove, hand_over, main
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.disk.small_files import CLEAN_SHUTDOWN, FORMAT, parse_meta_properties
from tests.core_broker.checking.made import EPOCHS, IDS, MIRRORED, PLAIN, RUNTIME, make
from tests.core_broker.storage.support import run


def moved(folder: Path) -> list[str]:
    files = RealFiles(1)
    try:
        return run(hand_over(files, str(folder), RUNTIME))
    finally:
        files.close()


def image_of(folder: Path) -> MetadataImage:
    async def read() -> MetadataImage:
        files = RealFiles(1)
        log = await MetadataLog.open(files, str(folder), RUNTIME)
        image = MetadataImage("c")
        await log.replay(image)
        await log.close()
        files.close()
        return image

    return run(read())


def identity(folder: Path) -> dict[str, str]:
    return parse_meta_properties((folder / "meta.properties").read_bytes(), "meta.properties")


def test_the_cluster_is_the_same_without_what_is_ours_alone(tmp_path: Path) -> None:
    folder = make(tmp_path / "data")
    before = image_of(folder)
    said = moved(folder)
    after = image_of(folder)
    assert {name: topic.id for name, topic in after.topics.items()} == IDS
    assert after.features == {"metadata.version": METADATA_VERSION, "group.version": 1}
    assert before.topics[MIRRORED].configs == {"mirror.link": "x"} and after.topics[MIRRORED].configs == {}
    assert said[0] == f"left out, because Kafka does not know it: mirror.link=x of topic {MIRRORED}"
    assert said[-1].startswith(f"{folder}: 2 topics, 4 partitions; start Kafka 4 on it with node.id=1")
    for partition in after.topics[PLAIN].partitions.values():
        assert (partition.leader, partition.isr, partition.replicas) == (NO_LEADER, (1,), (1,))
        assert partition.leader_epoch == EPOCHS - 1
    assert after.offset == before.offset
    assert FORMAT not in identity(folder)


def test_only_the_snapshot_is_left_of_the_metadata_log(tmp_path: Path) -> None:
    folder = make(tmp_path / "data")
    end = image_of(folder).offset + 1
    moved(folder)
    names = {path.name for path in (folder / DIRECTORY).iterdir() if path.stat().st_size}
    assert {name for name in names if name.endswith((".checkpoint", ".log"))} == {f"{end:020d}-0000000000.checkpoint"}
    assert (folder / DIRECTORY / f"{end:020d}.log").exists()


def test_an_interruption_is_made_good_by_doing_it_again(tmp_path: Path) -> None:
    """Between the snapshot and meta.properties: the directory is ours still, and says the same."""
    folder = make(tmp_path / "data")
    ours = (folder / "meta.properties").read_bytes()
    moved(folder)
    done = image_of(folder)
    (folder / "meta.properties").write_bytes(ours)
    moved(folder)
    again = image_of(folder)
    assert again.topics == done.topics and again.offset == done.offset


def test_what_cannot_be_handed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CannotMove, match=r"not a data directory: it has no meta\.properties"):
        moved(tmp_path)
    folder = make(tmp_path / "data")
    (folder / DIRECTORY).rename(tmp_path / "lost")
    with pytest.raises(CannotMove, match="has no records: the topics are unknown"):
        moved(folder)
    (folder / DIRECTORY).rename(tmp_path / "made anew")
    (tmp_path / "lost").rename(folder / DIRECTORY)
    (folder / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(CannotMove, match="not shut down cleanly: start a broker on it, and stop it"):
        moved(folder)
    (folder / CLEAN_SHUTDOWN).write_bytes(b"{}")
    moved(folder)
    assert main([str(folder)]) == 1
    told = "is already Kafka's: meta.properties has no isthmus.format\n"
    assert capsys.readouterr().err == f"isthmus broker to-kafka: {folder} {told}"
