"""Each client as producer, each codec, each client and kcat as consumer: equal keys, values, headers and timestamps.

Each producer writes one topic a codec, each consumer reads all topics once; a test is one cell of that.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest

from integration_tests.brokers import BrokerProcess
from isthmus.client import Client, TopicPartition
from isthmus.client.raw import fetch_raw
from isthmus.protocol import records as batches

from .libraries import LIBRARIES, READERS, WRITERS, Found
from .records import CODECS, Rec, create_topics, records_of, topic_of

WRITERS_AT_ONCE = 2
KCATS_AT_ONCE = 8  # they mostly wait for the ends of their topics
PARTITION_BYTES = 8 << 20
KCAT = shutil.which("kcat")
KCAT_RECORD = "%T %K %S %k%s%h\x1f\n"


@dataclass
class Written:
    """A topic after its producer is through: what must be in it, or what went wrong."""

    records: tuple[Rec, ...]
    begin_ms: int = 0
    end_ms: int = 0
    error: BaseException | None = None


class Matrix:
    """Topics written by everyone, and what each reader found in them, which is read when first asked for."""

    def __init__(self, broker: BrokerProcess):
        self.broker = broker
        self.written: dict[str, Written] = {}
        self._found: dict[str, Found | BaseException] = {}

    def write_all(self) -> None:
        """Java's JVMs beside the others, since they take longest."""
        create_topics(self.broker.bootstrap, [topic_of(name, codec) for name in LIBRARIES for codec in CODECS])
        with ThreadPoolExecutor(WRITERS_AT_ONCE) as pool:
            for name in sorted(LIBRARIES, key=lambda each: each != "java"):
                for codec in CODECS:
                    pool.submit(self._write, name, codec)

    def _write(self, name: str, codec: str) -> None:
        written = self.written[topic_of(name, codec)] = Written(records_of(name, codec))
        written.begin_ms = int(time.time() * 1000)
        try:
            WRITERS[name](self.broker.bootstrap, topic_of(name, codec), codec, written.records)
        except BaseException as error:
            written.error = error
        written.end_ms = int(time.time() * 1000)

    def found_by(self, reader: str) -> Found:
        if reader not in self._found:
            counts = {topic: len(each.records) for topic, each in self.written.items() if not each.error}
            try:
                self._found[reader] = {**READERS, "kcat": kcat_read}[reader](self.broker.bootstrap, counts)
            except BaseException as error:
                self._found[reader] = error
        found = self._found[reader]
        if isinstance(found, BaseException):
            raise AssertionError(f"{reader} failed") from found
        return found

    def expected(self, producer: str, codec: str, stored: list[Rec]) -> list[Rec]:
        """Where the producer's clock made the timestamps, those of `stored`, which must lie within its run."""
        written = self.written[topic_of(producer, codec)]
        if written.error:
            raise AssertionError(f"{producer} could not write {codec}") from written.error
        if producer != "java":
            return list(written.records)
        assert len(stored) == len(written.records)
        assert all(written.begin_ms <= each.timestamp_ms <= written.end_ms for each in stored)
        return [
            Rec(sent.key, sent.value, sent.headers, at.timestamp_ms)
            for sent, at in zip(written.records, stored, strict=True)
        ]


@pytest.fixture(scope="module")
def matrix(isthmus_broker: BrokerProcess) -> Matrix:
    made = Matrix(isthmus_broker)
    made.write_all()
    return made


@pytest.fixture(scope="module")
def stored(matrix: Matrix) -> dict[str, tuple[set[str], list[Rec]]]:
    """Codecs of the batches of each topic, and the records in them, from raw bytes."""

    async def main() -> dict[str, tuple[set[str], list[Rec]]]:
        client = Client(matrix.broker.bootstrap)
        await client.start()
        await client.refresh_metadata(list(matrix.written))
        found = {}
        for topic in matrix.written:
            tp = TopicPartition(topic, 0)
            node = client.leader(tp)
            assert node is not None
            [answer] = await fetch_raw(
                client, {tp: (0, -1)}, node_id=node, max_wait_ms=1000, min_bytes=1,
                max_bytes=PARTITION_BYTES, partition_max_bytes=PARTITION_BYTES,
            )  # fmt: skip
            assert answer.records is not None
            codecs = {CODECS[header.codec] for _, header in batches.walk(answer.records)}
            read = [Rec(r.key, r.value, r.headers, r.timestamp_ms) for r in batches.iter_records(answer.records)]
            found[topic] = codecs, read
        await client.close()
        return found

    return asyncio.run(main())


def differences(expected: list[Rec], found: list[Rec]) -> list[str]:
    unequal = [f"{n}: {a} was read as {b}" for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b]
    if len(expected) != len(found):
        unequal.append(f"{len(found)} records of {len(expected)}")
    return unequal


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", LIBRARIES)
def test_batches_are_stored_in_the_codec_of_the_producer(matrix, stored, producer: str, codec: str):
    codecs, records = stored[topic_of(producer, codec)]
    # A client may leave a batch as it is when its codec would not make it smaller; these records become smaller.
    assert codecs == {codec}
    assert differences(matrix.expected(producer, codec, records), records) == []


@pytest.mark.parametrize("consumer", LIBRARIES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", LIBRARIES)
def test_what_one_client_writes_another_reads(matrix, stored, producer: str, codec: str, consumer: str):
    topic = topic_of(producer, codec)
    expected = matrix.expected(producer, codec, stored[topic][1])
    assert differences(expected, matrix.found_by(consumer)[topic]) == []


def test_differences_name_what_is_missing_doubled_or_altered():
    """Control: an empty list is no accident."""
    a, b = Rec(b"k", b"v", (("h", None),), 1), Rec(b"k", b"v", (("h", b""),), 1)
    assert differences([a, b], [a, b]) == []
    assert differences([a, b], [a]) == ["1 records of 2"]
    assert differences([a], [a, a]) == ["2 records of 1"]
    assert len(differences([a, b], [b, b])) == 1


# --- kcat -------------------------------------------------------------------------------------------------------------

needs_kcat = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (`make peers` does, or apt install kcat)")


def kcat(*arguments: str) -> bytes:
    assert KCAT
    return subprocess.run([KCAT, *arguments], capture_output=True, check=True, timeout=30).stdout


def kcat_read(bootstrap: str, counts: Mapping[str, int]) -> Found:
    parse: Callable[[bytes], list[Rec]] = kcat_records
    with ThreadPoolExecutor(KCATS_AT_ONCE) as pool:
        found: dict[str, Future[bytes]] = {
            topic: pool.submit(kcat, "-b", bootstrap, "-C", "-q", "-t", topic, "-o", "beginning", "-e",
                               "-X", "check.crcs=true", "-f", KCAT_RECORD)
            for topic in counts
        }  # fmt: skip
    return {topic: parse(each.result()) for topic, each in found.items()}


def kcat_records(data: bytes) -> list[Rec]:
    found, at = [], 0
    while at < len(data):
        head = re.compile(rb"(-?\d+) (-?\d+) (-?\d+) ").match(data, at)
        assert head, data[at : at + 100]
        timestamp_ms, key_size, value_size = map(int, head.groups())
        key_end = head.end() + max(key_size, 0)
        value_end = key_end + max(value_size, 0)
        end = data.index(b"\x1f\n", value_end)
        pairs = [pair.partition(b"=") for pair in data[value_end:end].split(b",") if pair]
        found.append(
            Rec(
                data[head.end() : key_end] if key_size >= 0 else None,
                data[key_end:value_end] if value_size >= 0 else None,
                tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs),
                timestamp_ms,
            )
        )
        at = end + 2
    return found


@needs_kcat
def test_kcat_lists(matrix: Matrix):
    listed = kcat("-b", matrix.broker.bootstrap, "-L").decode()
    assert f"broker 1 at {matrix.broker.address}" in listed
    for topic in matrix.written:
        assert f'topic "{topic}" with 1 partitions:' in listed
    assert "leader 1, replicas: 1, isrs: 1" in listed


@needs_kcat
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", LIBRARIES)
def test_kcat_reads(matrix, stored, producer: str, codec: str):
    topic = topic_of(producer, codec)
    expected = matrix.expected(producer, codec, stored[topic][1])
    printed = [replace(each, headers=tuple((k, v and v.split(b"\0")[0]) for k, v in each.headers)) for each in expected]
    assert differences(printed, matrix.found_by("kcat")[topic]) == []  # kcat's %h prints a header up to a NUL
