"""ENOSPC and EIO as a real file system gives them: the partition is told as offline with its reason, the others serve,
and all that was acknowledged is there once the disk is well.

Each test has a control, the same on a file system that is well. Where what is broken is a device (a loop device whose
bytes are cut off, promised but not there, or that is shut down), the test needs the rights of root and says so.
"""

from __future__ import annotations

import re
import select
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from integration_tests.bad_input.records import RECORD_BYTES, consume, numbered, produce
from integration_tests.brokers import BrokerProcess
from integration_tests.console.commands import ISTHMUS, environment
from integration_tests.disks import MB, Mounts, Volume

NO_SPACE, IO_ERROR = "No space left on device", "Input/output error"
WAIT_S = 60.0  # much more than what is waited for takes
BAD = "bad"  # topic with the partition whose disk is broken; GOOD has one on a disk that is well
GOOD = "good"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, folder: Path, mounts: Mounts, **options: object) -> BrokerProcess:
    """A broker with both topics."""
    settings = {name.replace("_", "."): value for name, value in options.items()}
    broker = BrokerProcess(folder, {"metrics.listener": "127.0.0.1:0", **settings}, inside=mounts.inside)
    stack.callback(lambda: broker.kill() if broker.alive() else None)
    broker.start()
    create(broker, BAD, GOOD)
    return broker


def mounted(stack: ExitStack, *, devices: bool = False) -> Mounts:
    mounts = Mounts(devices=devices)
    stack.callback(mounts.close)
    return mounts


def create(broker: BrokerProcess, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in topics]).values():
        future.result(20)


def scrape(broker: BrokerProcess) -> dict[str, list[tuple[dict[str, str], float]]]:
    url = re.findall(r"metrics and health at (http://\S+)", broker.log)[-1]
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def offline(broker: BrokerProcess) -> dict[str, str]:
    """Reasons by topic, as the metrics have them."""
    found = scrape(broker)
    reasons = {labels["topic"]: labels["reason"] for labels, _ in found.get("isthmus_partition_offline", [])}
    [(_, count)] = found["kafka_server_replicamanager_offlinereplicacount"]
    [(_, directories)] = found["kafka_log_logmanager_offlinelogdirectorycount"]
    assert (count, directories) == (len(reasons), min(len(reasons), 1))
    return reasons


def until(what: Callable[[], bool], broker: BrokerProcess) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, f"nothing has come of it:\n{broker.log[-3000:]}"
        time.sleep(0.1)


def said(broker: BrokerProcess, *parts: str) -> list[str]:
    return [line for line in broker.log.splitlines() if all(part in line for part in parts)]


def check_others(broker: BrokerProcess, before: list[tuple[int, bytes]]) -> None:
    """The broker lives, and its other partition is written and read."""
    assert broker.alive()
    more, error = produce(broker, GOOD, numbered(2))
    assert (len(more), error) == (2, "")
    before += more
    assert consume(broker, GOOD, len(before)) == before
    assert "Traceback" not in broker.log


def log_of(broker: BrokerProcess, topic: str, offset: int = 0) -> Path:
    return broker.folder / f"data/{topic}-0/{offset:020d}.log"


# No room


def test_a_partition_takes_no_appends_while_its_disk_is_full_and_is_online_again_by_itself(
    tmp_path: Path, stack: ExitStack
) -> None:
    mounts = mounted(stack)
    broker = started(stack, tmp_path / "b", mounts)
    disk = broker.folder / f"data/{BAD}-0"
    mounts.memory_for(disk, MB)
    good, _ = produce(broker, GOOD, numbered(2))
    acked, error = produce(broker, BAD, numbered(3))
    assert error == "" and offline(broker) == {}  # the control: there is room

    more, error = produce(broker, BAD, numbered(2 * MB // RECORD_BYTES))
    acked += more
    assert "STORAGE" in error.upper(), error
    assert list(offline(broker)) == [BAD]
    assert NO_SPACE in offline(broker)[BAD] and str(disk) in offline(broker)[BAD]
    assert said(broker, f"{BAD}-0 takes no appends while this lasts", NO_SPACE, str(disk))
    check_others(broker, good)
    assert consume(broker, BAD, len(acked)) == acked  # what it has it gives

    assert not said(broker, "online again")
    mounts.resize(disk, 8 * MB)
    until(lambda: offline(broker) == {}, broker)  # nobody has written
    assert said(broker, f"{BAD}-0 takes appends again")
    more, error = produce(broker, BAD, numbered(3))
    assert (len(more), error) == (3, "")
    assert consume(broker, BAD, len(acked) + 3) == acked + more
    assert broker.stop() == 0


def test_a_partition_that_could_not_be_made_comes_back_by_itself(tmp_path: Path, stack: ExitStack) -> None:
    mounts = mounted(stack)
    broker = started(stack, tmp_path / "b", mounts)
    good, _ = produce(broker, GOOD, numbered(2))
    disk = broker.folder / "data/late-0"
    mounts.memory(disk, 16384)
    filler = mounts.fill(disk)
    create(broker, "late", "in-time")
    assert list(offline(broker)) == ["late"]
    assert NO_SPACE in offline(broker)["late"] and str(disk) in offline(broker)["late"]
    assert said(broker, "late-0 is offline until the shortage is over", NO_SPACE, str(disk))
    _, error = produce(broker, "late", numbered(1))
    assert "TIMED_OUT" in error, error  # no leader to ask, as with Kafka
    assert produce(broker, "in-time", numbered(1))[1] == ""  # the control: made by the same request
    check_others(broker, good)

    # A producer that goes on trying, as producers do unless they are told not to, is served as soon as there is room.
    delivered: list[str] = []
    patient = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": int(WAIT_S * 1000)})
    patient.produce("late", b"patient", on_delivery=lambda error, message: delivered.append(str(error)))
    assert patient.flush(1) == 1
    mounts.run("rm", filler)
    mounts.resize(disk, 8 * MB)
    assert patient.flush(WAIT_S) == 0
    assert delivered == ["None"]
    assert offline(broker) == {} and said(broker, "late-0 is online again")
    acked, error = produce(broker, "late", numbered(2))
    assert error == ""
    assert consume(broker, "late", 3) == [(0, b"patient"), *acked]
    broker.kill()
    broker.start()
    assert consume(broker, "late", 3) == [(0, b"patient"), *acked]
    assert broker.stop() == 0


def test_a_group_whose_offsets_could_not_be_kept_is_coordinated_once_there_is_room(
    tmp_path: Path, stack: ExitStack
) -> None:
    mounts = mounted(stack)
    broker = started(stack, tmp_path / "b", mounts, offsets_topic_num_partitions=1)
    produce(broker, GOOD, numbered(2))
    disk = broker.folder / "data/__consumer_offsets-0"
    mounts.memory(disk, 16384)
    filler = mounts.fill(disk)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    committed = [TopicPartition(GOOD, 0, 1)]
    consumer.subscribe([GOOD])
    until(lambda: consumer.poll(0.2) is None and "__consumer_offsets" in offline(broker), broker)
    mounts.run("rm", filler)
    mounts.resize(disk, 8 * MB)
    until(lambda: bool(consumer.poll(0.2)) or bool(consumer.assignment()), broker)
    consumer.commit(offsets=committed, asynchronous=False)
    assert [each.offset for each in consumer.committed(committed, WAIT_S)] == [1]
    consumer.close()
    assert offline(broker) == {}


def test_a_member_without_a_coordinator_says_so_once_goes_on_waiting_and_says_when_it_is_over(
    tmp_path: Path, stack: ExitStack
) -> None:
    mounts = mounted(stack)
    broker = started(stack, tmp_path / "b", mounts, offsets_topic_num_partitions=1)
    count = len(produce(broker, GOOD, iter([b"one", b"two"]))[0])
    disk = broker.folder / "data/__consumer_offsets-0"
    mounts.memory(disk, 16384)
    filler = mounts.fill(disk)
    command = [*ISTHMUS, "consume", GOOD, "-g", "g", "-n", str(count), "-b", broker.bootstrap]
    member = stack.enter_context(subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment()))
    stack.callback(member.kill)
    assert member.stderr and select.select([member.stderr], [], [], WAIT_S)[0]
    text = member.stderr.readline()
    assert text.startswith("group g has no coordinator (") and "): waiting for one. Its partition of" in text
    assert "__consumer_offsets" in offline(broker)
    mounts.run("rm", filler)
    mounts.resize(disk, 8 * MB)
    said_at_last = r"group g has a coordinator again, after \d+ s\n"
    records, rest = member.communicate(timeout=WAIT_S)
    assert records == "one\ntwo\n" and re.fullmatch(said_at_last, rest), rest
    assert member.returncode == 0


# A device that is broken


class OnADevice:
    """A broker that has the log of BAD, or its whole directory, on a device of its own; `good` and `acked` are what the
    topics hold."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        records: int,
        pool_bytes: int = 2 * Volume.SIZE_BYTES,
        whole: bool = False,
        **options: object,
    ) -> None:
        self.mounts = mounted(stack, devices=True)
        self.broker = started(stack, folder / "b", self.mounts, **options)
        self.good, _ = produce(self.broker, GOOD, numbered(2))
        self.acked, error = produce(self.broker, BAD, numbered(records))
        assert error == "" and self.broker.stop() == 0
        self.volume = Volume(self.mounts, folder, pool_bytes)
        self.file = log_of(self.broker, BAD)
        self.held = self.file.parent if whole else self.file
        self.volume.hold(self.held)
        self.volume.mount_again(self.held)
        self.broker.start()
        assert offline(self.broker) == {}


@pytest.mark.parametrize("is_broken", [True, False], ids=["broken", "well"])
def test_sectors_that_cannot_be_read_take_their_partition_offline(
    is_broken: bool, tmp_path: Path, stack: ExitStack
) -> None:
    made = OnADevice(stack, tmp_path, 30, log_segment_bytes=2 * MB)
    broker, volume, file, acked = made.broker, made.volume, made.file, made.acked
    lost = 10
    if is_broken:
        volume.lose(acked[lost][1][:64])

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "r", "enable.auto.commit": False})
    consumer.assign([TopicPartition(BAD, 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []

    def is_over() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.offset(), message.value()))
        return len(found) == len(acked) or (is_broken and bool(offline(broker)))

    until(is_over, broker)
    consumer.close()
    assert found == acked[: len(found)]  # what it gives is right
    check_others(broker, made.good)
    if not is_broken:
        assert len(found) == len(acked) and offline(broker) == {} and not said(broker, "offline")
        return
    assert len(found) <= lost
    assert list(offline(broker)) == [BAD]
    assert IO_ERROR in offline(broker)[BAD] and str(file) in offline(broker)[BAD]
    assert said(broker, f"{BAD}-0 is offline until the broker starts again", IO_ERROR, str(file))
    _, error = produce(broker, BAD, numbered(1))
    assert "TIMED_OUT" in error, error  # no leader to ask, as with Kafka
    broker.kill()
    volume.forget(file)
    broker.start()  # which finds nothing of it in the page cache
    assert list(offline(broker)) == [BAD] and IO_ERROR in offline(broker)[BAD]
    check_others(broker, made.good)
    assert broker.stop() == 0

    volume.find_again()
    volume.mount_again(file)
    broker.start()
    assert offline(broker) == {}
    assert consume(broker, BAD, len(acked)) == acked


@pytest.mark.parametrize("comes_back", ["by itself", "by a start", "by a start without the page cache", "well"])
def test_a_sync_that_fails_takes_its_partition_offline_and_loses_nothing_acknowledged(
    comes_back: str, tmp_path: Path, stack: ExitStack
) -> None:
    """A thin volume takes appends into the page cache and finds at the sync that it has no room for them.

    The system then forgets that they are not written: another sync says all is well, and so it does of what is written
    over them, which ext4 loses none the less. What the broker has acknowledged must be on the device all the same, and
    what it reads again once there is room too.
    """
    is_broken = comes_back != "well"
    made = OnADevice(stack, tmp_path, 2, 4 * MB if is_broken else 32 * MB, whole=True, durability="fsync")
    broker, volume, acked = made.broker, made.volume, made.acked
    more, error = produce(broker, BAD, numbered(80))
    acked += more
    check_others(broker, made.good)
    if not is_broken:
        assert (len(more), error) == (80, "") and offline(broker) == {} and not said(broker, "offline")
    else:
        assert "STORAGE" in error.upper(), error
        assert 2 < len(acked) < 60
        assert list(offline(broker)) == [BAD]
        assert NO_SPACE in offline(broker)[BAD]  # of the sync, or of a try to open it since
        assert said(broker, f"{BAD}-0 is offline until the shortage is over", "cannot sync", NO_SPACE)
        if comes_back.startswith("by a start"):
            broker.kill()
        if comes_back.endswith("without the page cache"):
            volume.forget(made.file)
        made.mounts.resize(volume.pool, 32 * MB)
    if comes_back == "by itself":
        until(lambda: offline(broker) == {}, broker)
        assert said(broker, f"{BAD}-0 is online again")
    elif comes_back.startswith("by a start"):
        broker.start()  # with what the page cache has, if anything, and the device may not
        assert offline(broker) == {}
    after, error = produce(broker, BAD, numbered(2))
    assert (len(after), error) == (2, "")
    served = consume(broker, BAD, after[-1][0] + 1)
    assert served[: len(acked)] == acked and served[-2:] == after
    broker.kill()
    volume.mount_again(made.held)  # from here on it is what the device has
    broker.start()
    assert consume(broker, BAD, len(served)) == served
    assert produce(broker, BAD, numbered(2))[1] == ""
    assert broker.stop() == 0


def test_a_cluster_whose_metadata_could_not_be_synced_is_changed_again_once_there_is_room(
    tmp_path: Path, stack: ExitStack
) -> None:
    """On a thin volume, as above: what was in doubt is done then, and on the device."""
    mounts = mounted(stack, devices=True)
    broker = started(stack, tmp_path / "b", mounts)
    good, _ = produce(broker, GOOD, numbered(2))
    assert broker.stop() == 0
    volume = Volume(mounts, tmp_path)
    directory = broker.folder / "data/__cluster_metadata-0"
    volume.hold(directory)
    volume.mount_again(directory)
    broker.start()
    create(broker, "before")  # the control: there is room
    filler = mounts.fill(volume.pool)
    with pytest.raises(KafkaException, match="may be done once the shortage is over"):
        create(broker, "in-doubt", partitions=200)
    assert said(broker, "__cluster_metadata-0 is offline until the shortage is over", NO_SPACE)
    with pytest.raises(KafkaException, match=NO_SPACE):
        create(broker, "meanwhile")
    check_others(broker, good)
    mounts.run("rm", filler)
    until(lambda: bool(said(broker, "the metadata log is online again")), broker)
    create(broker, "after")
    topics = {BAD, GOOD, "before", "in-doubt", "after"}
    for _ in range(2):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert topics == {name for name in admin.list_topics(timeout=20).topics if not name.startswith("__")}
        assert produce(broker, "in-doubt", numbered(2))[1] == ""
        broker.kill()
        volume.mount_again(directory)  # from here on it is what the device has
        broker.start()


@pytest.mark.parametrize("durability", ["page_cache", "fsync"])
def test_a_device_that_dies_takes_its_partition_offline(durability: str, tmp_path: Path, stack: ExitStack) -> None:
    made = OnADevice(stack, tmp_path, 2, durability=durability)
    broker, volume, file, acked = made.broker, made.volume, made.file, made.acked
    more, error = produce(broker, BAD, numbered(5))
    acked += more
    assert error == "" and offline(broker) == {}  # the control: the device is well
    volume.die()
    more, error = produce(broker, BAD, numbered(5))
    assert more == [] and "STORAGE" in error.upper(), error
    assert list(offline(broker)) == [BAD]
    assert IO_ERROR in offline(broker)[BAD] and str(file) in offline(broker)[BAD]
    assert said(broker, f"{BAD}-0 is offline until the broker starts again", IO_ERROR, str(file))
    check_others(broker, made.good)
    is_unwritten = durability == "page_cache"  # what was acknowledged before the device died
    assert broker.stop() == is_unwritten
    named = said(broker, "isthmus broker: stopped, but could not write everything", IO_ERROR, str(file))
    assert len(named) == is_unwritten
    volume.mount_again(file)
    broker.start()
    assert offline(broker) == {}
    assert consume(broker, BAD, len(acked)) == acked
    assert produce(broker, BAD, numbered(2))[1] == ""
