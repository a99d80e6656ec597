"""What was fetched is given out a few record batches at a time, every event once, offsets right after each."""

import gc
import weakref

import pyarrow as pa
import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams import App, Topic
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.failures import OnError
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.serialization import DecodeError
from isthmus.streams.errors import RecordError
from isthmus.streams.runtime.backlog import Backlog, Raw

TP = TopicPartition("t", 3)


def json_topic(on_error: OnError = "fail") -> Topic:
    return App("app").topic("t", on_error=on_error)


def fetched(*batches: tuple[int, int], next_offset: int) -> FetchedBatches:
    """batches: (base offset, records)."""
    data = b"".join(
        bytes(records.build_batch([(0, None, b"%d" % (base + i), ()) for i in range(count)], base_offset=base))
        for base, count in batches
    )
    return FetchedBatches(TP, memoryview(data), batches[0][0] if batches else 0, next_offset, next_offset, next_offset)


def drained(backlog: Backlog, most: int) -> list[tuple[list[int], int]]:
    taken = []
    while not backlog.empty:
        some = backlog.ahead(most)
        assert backlog.ahead(most) == some  # until they are passed
        next_offset = backlog.passed(len(some)).offset
        assert [event.offset for event in some] == [event.value for event in some]
        taken.append(([event.offset for event in some], next_offset))
    return taken


def test_whole_batches_are_decoded_until_there_is_enough():
    backlog = Backlog(fetched((0, 2), (2, 2), (10, 1), next_offset=11), json_topic(), 0)
    assert drained(backlog, 3) == [([0, 1, 2], 3), ([3], 4), ([10], 11)]


def test_a_large_batch_is_given_in_parts():
    backlog = Backlog(fetched((5, 7), next_offset=12), json_topic(), 5)
    assert drained(backlog, 3) == [([5, 6, 7], 8), ([8, 9, 10], 11), ([11], 12)]


def test_what_was_not_passed_is_given_again():
    backlog = Backlog(fetched((5, 4), next_offset=9), json_topic(), 5)
    assert [event.offset for event in backlog.ahead(3)] == [5, 6, 7]
    assert (backlog.passed(1).offset, drained(backlog, 100)) == (6, [([6, 7, 8], 9)])


def test_what_was_passed_is_freed_without_a_collection_of_garbage():
    backlog = Backlog(fetched((5, 4), next_offset=9), json_topic(), 5)
    freed = weakref.ref(backlog)
    gc.disable()
    try:
        backlog.passed(len(backlog.ahead(100)))
        del backlog
        assert freed() is None
    finally:
        gc.enable()


def test_records_below_the_position_are_left_out_and_holes_at_the_end_are_passed():
    backlog = Backlog(fetched((0, 4), next_offset=9), json_topic(), 2)
    assert drained(backlog, 100) == [([2, 3], 9)]
    assert drained(Backlog(fetched((0, 4), next_offset=4), json_topic(), 6), 100) == [([], 6)]


def test_a_batch_that_cannot_be_read_is_named():
    good = fetched((0, 3), next_offset=3)
    data = bytearray(good.records)
    data[-1] ^= 1
    broken = FetchedBatches(TP, memoryview(data), 0, 3, 3, 3)
    with pytest.raises(RecordError, match="t-3 from offset 0 on: "):
        Backlog(broken, json_topic(), 0).ahead(10)


def test_a_position_has_the_epoch_of_the_record_before_it():
    """So that it is noticed if a leader cuts the log off below it."""
    data = b"".join(
        bytes(records.build_batch([(0, None, b"1", ())] * 2, base_offset=base, partition_leader_epoch=epoch))
        for base, epoch in ((0, 3), (2, 5))
    )
    backlog = Backlog(FetchedBatches(TP, memoryview(data), 0, 6, 6, 6, next_epoch=7), json_topic(), 0)
    taken = []
    while not backlog.empty:
        taken.append(backlog.passed(len(backlog.ahead(1))))
    assert taken == [Position(1, 3), Position(2, 3), Position(3, 5), Position(6, 7)]


def refusing(on_error: OnError) -> Backlog:
    fields = [(9, b"k%d" % n, value, ()) for n, value in enumerate((b"0", b"{", b"2", b"}", b"4"))]
    data = memoryview(bytes(records.build_batch(fields, base_offset=0)))
    return Backlog(FetchedBatches(TP, data, 0, 5, 5, 5), json_topic(on_error), 0)


def test_what_cannot_be_decoded_is_left_out_by_its_policy():
    def odd(topic: str, partition: int, offset: int, error: BaseException) -> str:
        assert (topic, partition, type(error)) == ("t", 3, DecodeError)
        return "skip" if offset == 1 else "dead_letter"

    for policy, said in (("skip", ["skip"] * 2), (odd, ["skip", "dead_letter"])):
        backlog = refusing(policy)
        assert [event.value for event in backlog.ahead(10)] == [0, 2, 4]
        assert [each.policy for each in backlog.refused] == said
        assert not any("on_error" in str(each.error) for each in backlog.refused)  # it was left out
        assert [each.raw for each in backlog.refused] == [Raw(1, 9, b"k1", b"{"), Raw(3, 9, b"k3", b"}")]
        assert backlog.passed(3).offset == 5


@pytest.mark.parametrize(("policy", "must_stop"), [("fail", False), ("stop", True)])
def test_what_cannot_be_decoded_and_may_not_be_left_out_comes_after_what_is_before_it(policy, must_stop):
    backlog = refusing(policy)
    assert [event.value for event in backlog.ahead(10)] == [0]
    assert backlog.passed(1).offset == 1 and not backlog.empty
    with pytest.raises(RecordError, match=r"t-3 offset 1: the value cannot be decoded: .*on_error='skip'") as caught:
        backlog.ahead(10)
    assert (caught.value.at, caught.value.must_stop) == (("t", 3, 1), must_stop)


def test_a_record_is_found_as_it_was_fetched():
    data = bytes(records.build_batch([(7, b"k", b"1", (("h", b"x"),))], base_offset=5))
    backlog = Backlog(FetchedBatches(TP, memoryview(data), 5, 6, 6, 6), json_topic(), 5)
    assert backlog.raw(5) == Raw(5, 7, b"k", b"1", (("h", b"x"),)) and backlog.raw(6) is None


def test_columns_are_given_by_fetched_batches_up_to_a_bad_record():
    topic = App("app").topic("t", columns=pa.schema([("n", pa.int64())]))
    values = [b'{"n": 1}', b'{"n": 2}', b"{", b'{"n": 4}']
    data = b"".join(records.build_batch([(9, None, each, ())], base_offset=n) for n, each in enumerate(values))
    backlog = Backlog(FetchedBatches(TP, memoryview(data), 0, 4, 4, 4), topic, 1)
    [event] = backlog.ahead(100)
    assert (event.offset, event.timestamp_ms, event.value["value"].to_pylist()) == (1, 9, [{"n": 2}])
    assert backlog.count(1) == 1 and backlog.passed(1).offset == 2
    with pytest.raises(RecordError, match="t-3 offset 2: the value cannot be decoded: JSON parse error"):
        backlog.ahead(100)


def test_columns_of_one_record_batch_are_one_event():
    topic = App("app").topic("t", columns=True)
    backlog = Backlog(fetched((0, 3), (3, 4), (7, 1), next_offset=9), topic, 2)
    [event] = backlog.ahead(4)
    assert event.value["offset"].to_pylist() == [2, 3, 4, 5, 6]
    assert backlog.count(1) == 5 and backlog.passed(1) == Position(7)
    [event] = backlog.ahead(4)
    assert event.value["value"].to_pylist() == [b"7"] and backlog.passed(1).offset == 9 and backlog.empty


def test_heartbeats_are_events_of_their_own_whatever_the_topics_records_are() -> None:
    beats = [Heartbeat("in", partition, 2, 7, lacking=(("fra", 3),)) for partition in (0, 1)]
    rows = [
        (7, None, None, beats[0].headers),
        (5, b"k", b"1", ()),
        (6, b"k", b"2", (("isthmus-watermark", b"of an app"), ("more", b""))),
        (7, None, None, beats[1].headers),
        (8, b"k", b"no JSON", ()),
        (9, None, None, beats[1].headers),
    ]
    topic = App("app").topic("t", allow_empty=False)
    topic.has_heartbeats = True
    data = memoryview(bytes(records.build_batch(rows)))  # type: ignore[arg-type]
    backlog = Backlog(FetchedBatches(TP, data, 0, 6, 6, 6), topic, 0)
    found = backlog.ahead(10)
    assert [(event.offset, event.value) for event in found] == [(0, beats[0]), (1, 1), (2, 2), (3, beats[1])]
    backlog.passed(4)
    with pytest.raises(RecordError, match="t-3 offset 4"):
        backlog.ahead(10)


def test_a_heartbeat_that_cannot_be_read_says_so() -> None:
    topic = App("app").topic("t")
    topic.has_heartbeats = True
    data = memoryview(bytes(records.build_batch([(0, None, None, (("isthmus-watermark", b"[1]"),))])))  # type: ignore[arg-type, list-item]
    with pytest.raises(RecordError, match="t-3 offset 0: header isthmus-watermark is not one of this release"):
        Backlog(FetchedBatches(TP, data, 0, 1, 1, 1), topic, 0).ahead(1)


def test_a_record_of_which_no_event_time_can_be_made_says_so() -> None:
    data = memoryview(bytes(records.build_batch([(0, None, b'{"at": 1.5}', ()), (0, None, b"{}", ())])))
    topic = App("app").topic("t", on_error="skip", timestamp=lambda value: value["at"])
    backlog = Backlog(FetchedBatches(TP, data, 0, 2, 2, 2), topic, 0)
    assert backlog.ahead(10) == []
    no_int, no_field = (str(each.error) for each in backlog.refused)
    assert "t-3 offset 0: timestamp= of the topic gives no event time for the value: it returns 1.5, and is" in no_int
    assert "t-3 offset 1: timestamp= of the topic gives no event time for the value: 'at'" in no_field
