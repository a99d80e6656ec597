"""Reading a range to its end, whatever comes between: errors that pass, offsets that are gone, brokers that hang, and
batches that expand to much more than they are."""

import asyncio
import tracemalloc

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import ConnectionLost
from isthmus.client.raw import RawFetch
from isthmus.connectors import reading
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import parse
from isthmus.connectors.planning import GONE_ANSWERS, OffsetRange
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import BatchBuilder, build_batch

TP = TopicPartition("t", 0)


def batches(first, count, each=5):
    """`count` batches of `each` records from offset `first` on; values are their offsets."""
    made = []
    for at in range(first, first + count * each, each):
        made.append(build_batch([(0, None, b"%d" % o, ()) for o in range(at, at + each)], "lz4", base_offset=at))
    return b"".join(made)


OURS, ANOTHER = bytes(range(16)), bytes(range(1, 17))  # ids of topics


class Broker:
    """Stands for client, admin and fetch_raw: a log, and what to do instead of answering."""

    def __init__(self, log=b"", start=0, instead=(), fetch_bytes=300):
        self.log = log
        self.start_offset = start
        self.instead = list(instead)
        self.fetch_bytes = fetch_bytes
        self.asked = []
        self.refreshed = self.closed = 0
        self.id = OURS
        self.aborted = ()  # producer id, first and last offset

    def topic_id(self, topic):
        return self.id

    async def start(self, timeout_ms):
        pass

    async def close(self):
        self.closed += 1

    async def back_off(self, attempt):
        await asyncio.sleep(0)

    async def refresh_metadata(self, topics):
        self.refreshed += 1

    async def leader_of(self, tp):
        return 1

    async def list_offsets(self, wanted, isolation=0):
        if self.instead and isinstance(self.instead[0], Exception):
            raise self.instead.pop(0)
        return dict.fromkeys(wanted, (self.start_offset, -1, 0))

    async def fetch(self, client, positions, isolation, **limits):
        self.isolation = isolation
        [(offset, *_)] = positions.values()
        self.asked.append(offset)
        if self.instead:
            what = self.instead.pop(0)
            if isinstance(what, Exception):
                raise what
            return [self.answer(b"", what)]
        if offset < self.start_offset:
            return [self.answer(b"", ErrorCode.OFFSET_OUT_OF_RANGE)]
        at = next((at for at, header in records.walk(self.log) if header.last_offset >= offset), len(self.log))
        return [self.answer(self.log[at : at + self.fetch_bytes], 0)]

    def answer(self, data, code):
        headers = [header for _, header in records.walk(data)]
        aborted = [
            (producer_id, first)
            for producer_id, first, last in self.aborted
            if headers and first <= headers[-1].last_offset and last >= headers[0].base_offset
        ]
        return RawFetch(TP, int(code), 0, 0, self.start_offset, None, memoryview(data), tuple(aborted))


@pytest.fixture
def batches_of(monkeypatch):
    """What Spark is given of a range, a record batch at a time."""

    def batches_of(broker, start, end, columns=("offset", "value"), **given):
        monkeypatch.setattr(reading, "client_of", lambda options: broker)
        monkeypatch.setattr(reading, "Admin", lambda client: client)
        monkeypatch.setattr(reading, "fetch_raw", broker.fetch)
        options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, streaming=False)
        return reading.read_ranges(options, [OffsetRange("t", 0, start, end, OURS)], columns)

    return batches_of


@pytest.fixture
def read(batches_of):
    def read(broker, start, end, **given):
        found = [row for batch in batches_of(broker, start, end, **given) for row in batch.to_pylist()]
        assert all(row["value"] == b"%d" % row["offset"] for row in found)
        return [row["offset"] for row in found]

    return read


def test_a_range_is_read_over_many_fetches_and_no_further(read):
    broker = Broker(batches(0, 20))
    assert read(broker, 7, 61) == list(range(7, 61))
    assert len(broker.asked) > 3 and max(broker.asked) < 61
    assert broker.closed == 1


def test_an_error_that_passes_is_asked_again_of_the_new_leader(read):
    broker = Broker(batches(0, 2), instead=[ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionLost("gone"), ErrorCode.NONE])
    assert read(broker, 0, 10) == list(range(10))
    assert broker.refreshed == 3
    assert broker.asked[:4] == [0, 0, 0, 0]


PASSING = [
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not known yet"),
    KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader: is its broker down?"),
    KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "fetch from node 1"),
    ConnectionLost("gone"),
]


@pytest.mark.parametrize("trouble", PASSING, ids=str)
def test_what_passes_is_tried_again(read, trouble):
    assert read(Broker(batches(0, 2), instead=[trouble]), 0, 10) == list(range(10))


@pytest.mark.parametrize("trouble", PASSING[2:], ids=str)
def test_so_it_is_where_it_comes_between_a_loss_and_going_on(read, trouble):
    broker = Broker(batches(5, 2), start=5, instead=[ErrorCode.OFFSET_OUT_OF_RANGE, trouble])
    assert read(broker, 2, 12, failOnDataLoss="false") == list(range(5, 12))


def test_time_in_which_spark_takes_rows_does_not_count(batches_of, monkeypatch):
    """A slow consumer is no stuck broker: neither its range's deadline nor a request's timer runs meanwhile."""
    passed_s = 0.0
    time = asyncio.SelectorEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: time(loop) + passed_s)
    broker = Broker(batches(0, 20))
    offsets = []
    for batch in batches_of(broker, 0, 100, ["offset"], **{"kafkaConsumer.pollTimeoutMs": "60000"}):
        broker.instead = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ConnectionLost("gone")]
        offsets += batch.column("offset").to_pylist()
        passed_s += 1000.0
    assert offsets == list(range(100))
    assert len(broker.asked) > 6


def test_an_error_that_stays_names_topic_and_offset(read):
    with pytest.raises(SourceError, match="fetch of t-0 at offset 3"):
        read(Broker(instead=[ErrorCode.TOPIC_AUTHORIZATION_FAILED]), 3, 10)


def test_a_broker_that_never_answers_is_given_up_with_the_last_trouble(read):
    trouble = [ConnectionLost("h:1 cannot be reached")] * 1000
    with pytest.raises(SourceError, match=r"stuck at offset 3 of 10 for 0.001 s .* h:1 cannot be reached"):
        read(Broker(instead=trouble), 3, 10, **{"kafkaConsumer.pollTimeoutMs": "1"})


def test_offsets_that_are_gone_are_an_error(read):
    with pytest.raises(SourceError, match="t-0: offsets 2 to 4 are gone"):
        read(Broker(batches(5, 2), start=5), 2, 12)


def test_offsets_that_are_gone_may_be_left_out(read):
    assert read(Broker(batches(5, 2), start=5), 2, 12, failOnDataLoss="false") == list(range(5, 12))


def test_a_range_that_is_gone_altogether_gives_nothing(read):
    assert read(Broker(batches(50, 2), start=50), 2, 12, failOnDataLoss="false") == []


def test_a_range_past_the_end_of_a_log_made_anew_is_gone_too(read):
    broker = Broker(batches(0, 2), instead=[ErrorCode.OFFSET_OUT_OF_RANGE] * 2)
    with pytest.raises(SourceError, match="made anew"):
        read(broker, 100, 110)
    assert read(broker, 100, 110, failOnDataLoss="false") == []


def test_a_topic_deleted_under_a_task_is_an_error_or_left_out(read):
    gone = [KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-0")] * (2 * GONE_ANSWERS)
    broker = Broker(batches(0, 2), instead=gone)
    with pytest.raises(SourceError, match="there is no partition t-0"):
        read(broker, 0, 5)
    assert read(broker, 0, 5, failOnDataLoss="false") == []


def test_records_of_a_topic_made_anew_are_not_taken_for_those_that_were_planned(read):
    def made_anew():
        broker = Broker(batches(0, 20), instead=[ErrorCode.UNKNOWN_TOPIC_ID])
        refresh = broker.refresh_metadata

        async def refreshed(topics):
            await refresh(topics)
            broker.id = ANOTHER

        broker.refresh_metadata = refreshed
        return broker

    with pytest.raises(SourceError, match="t-0: offsets 0 to 19 are gone: the topic was deleted and made anew"):
        read(made_anew(), 0, 20)
    assert read(made_anew(), 0, 20, failOnDataLoss="false") == []
    without_ids = Broker(batches(0, 20))
    without_ids.id = None
    assert read(without_ids, 0, 20) == list(range(20))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_memory_does_not_depend_on_what_batches_expand_to(batches_of, codec):
    """124 MiB of zeros in one batch, and as much in many of one fetch."""
    zeros = [(0, None, bytes(100_000), ())]
    one = build_batch(zeros * 1300, codec)
    many = b"".join(build_batch(zeros * 10, codec, base_offset=1300 + 10 * n) for n in range(130))
    broker = Broker(one + many, fetch_bytes=len(one + many))
    tracemalloc.start()
    try:
        found = batches_of(broker, 0, 2600)
        assert sum(batch.num_rows for batch in found) == 2600
        assert tracemalloc.get_traced_memory()[1] < len(one + many) + (40 << 20)
    finally:
        tracemalloc.stop()


def test_a_record_that_does_not_fit_is_an_error_with_its_option(read):
    log = build_batch([(0, None, b"%d" % n, ()) for n in range(4)], "zstd")
    log += build_batch([(0, None, b"4", ()), (0, None, bytes(30_000), ())], "zstd", base_offset=4)
    broker = Broker(log, fetch_bytes=len(log))
    said = r"^t-0: the record after offset 4, .* more than 20000 bytes .*; a larger decodeMaxBytes takes it$"
    with pytest.raises(SourceError, match=said):
        read(broker, 0, 6, decodeMaxBytes="20000")
    assert read(broker, 0, 5) == list(range(5))


def test_a_damaged_batch_is_named(read):
    log = bytearray(batches(0, 2))
    log[-1] ^= 1
    with pytest.raises(SourceError, match=r"^t-0: the batch at offset 5 of .* does not match its CRC"):
        read(Broker(bytes(log)), 0, 10)


def test_a_hole_that_compaction_left_is_passed_over(read):
    assert read(Broker(batches(0, 1) + batches(20, 1)), 0, 25) == [*range(5), *range(20, 25)]
    assert read(Broker(batches(0, 1) + batches(20, 1)), 0, 10) == list(range(5))


def test_a_task_that_is_given_up_closes_its_client(read, monkeypatch):
    broker = Broker(batches(0, 20))
    assert read(broker, 0, 5) == list(range(5))
    options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, streaming=False)
    rows = reading.read_ranges(options, [OffsetRange("t", 0, 0, 100)], ["offset"])
    next(rows)
    rows.close()
    assert broker.closed == 2


def test_what_the_cluster_says_is_told_with_its_address(read):
    broker = Broker(instead=[KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "no luck")])
    with pytest.raises(SourceError, match=r"cluster at h:1: .*no luck"):
        read(broker, 0, 5)


def transactions():
    """Producers 7 and 8 by turns: 7's records are aborted at 40 and 44, 8's committed at 42 and 43; 45 to 49 are
    nobody's."""
    made = []

    def add(at, count, producer, control=False):
        builder = BatchBuilder(max_bytes=10_000, control=control, transactional=producer >= 0, producer_id=producer)
        builder.base_offset = at
        for offset in range(at, at + count):
            builder.append(0, b"\0\0\0\0" if control else None, b"%d" % offset)
        made.append(builder.build())

    for at in range(0, 40, 5):
        add(at, 5, 7 + at // 5 % 2)
    add(40, 1, 7, control=True)
    add(41, 1, 7)
    add(42, 1, 8, control=True)
    add(43, 1, 8, control=True)
    add(44, 1, 7, control=True)
    add(45, 5, -1)
    return b"".join(made), ((7, 0, 40), (7, 41, 44))


COMMITTED = [offset for offset in range(40) if offset // 5 % 2] + list(range(45, 50))


@pytest.mark.parametrize("fetch_bytes", [200, 500, 5_000])
@pytest.mark.parametrize(("start", "end"), [(0, 50), (0, 12), (3, 41), (12, 38), (7, 8), (20, 45), (41, 46), (44, 50)])
def test_a_task_leaves_out_aborted_records_wherever_it_begins_and_ends(read, start, end, fetch_bytes):
    log, aborted = transactions()
    broker = Broker(log, fetch_bytes=fetch_bytes)
    broker.aborted = aborted
    assert read(broker, start, end) == [offset for offset in COMMITTED if start <= offset < end]
    assert broker.isolation == 1


def test_a_task_that_is_told_to_reads_what_was_aborted(read):
    log, _ = transactions()
    broker = Broker(log)
    assert read(broker, 0, 50, **{"kafka.isolation.level": "read_uncommitted"}) == [*range(40), 41, *range(45, 50)]
    assert broker.isolation == 0
