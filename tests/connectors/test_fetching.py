"""Reading a range to its end, whatever comes between: errors that pass, offsets that are gone, brokers that hang."""

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import ConnectionLost
from isthmus.client.raw import RawFetch
from isthmus.connectors import reading
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import parse
from isthmus.connectors.planning import OffsetRange
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import build_batch

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

    def topic_id(self, topic):
        return self.id

    async def start(self):
        pass

    async def close(self):
        self.closed += 1

    async def back_off(self, attempt):
        pass

    async def refresh_metadata(self, topics):
        self.refreshed += 1

    async def leader_of(self, tp):
        return 1

    async def list_offsets(self, wanted):
        return dict.fromkeys(wanted, (self.start_offset, -1, 0))

    async def fetch(self, client, positions, **limits):
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
        return RawFetch(TP, int(code), 0, 0, self.start_offset, None, memoryview(data))


@pytest.fixture
def read(monkeypatch):
    def read(broker, start, end, **given):
        monkeypatch.setattr(reading, "Client", lambda *_, **__: broker)
        monkeypatch.setattr(reading, "Admin", lambda client: client)
        monkeypatch.setattr(reading, "fetch_raw", broker.fetch)
        options = parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **given}, streaming=False)
        found = []
        for batch in reading.read_ranges(options, [OffsetRange("t", 0, start, end, OURS)], ["offset", "value"]):
            found += batch.to_pylist()
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
    gone = [KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-0")] * 2
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
