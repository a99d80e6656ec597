"""Which offsets a task, a micro-batch and a query read: the arithmetic of Spark's own suites."""

import asyncio

import pytest

from isthmus.client import TopicPartition
from isthmus.client.raw import READ_COMMITTED
from isthmus.connectors import planning
from isthmus.connectors.errors import SourceError
from isthmus.connectors.options import SourceOptions, parse
from isthmus.connectors.planning import OffsetRange, cut, limited, ranges_between, split, tasks

A, B, C = (TopicPartition("t", p) for p in range(3))
ORDERS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def sizes(shares):
    return sorted(sum(each.size for each in share) for share in shares)


def covered(shares):
    """Every offset of the shares, each once."""
    offsets = [(r.topic, r.partition, o) for share in shares for r in share for o in range(r.start, r.end)]
    assert len(offsets) == len(set(offsets))
    return set(offsets)


# --- maxOffsetsPerTrigger ---------------------------------------------------------------------------


def test_a_micro_batch_is_shared_out_by_backlog_and_starves_nobody():
    starts, ends = {A: 0, B: 0, C: 0}, {A: 101, B: 11, C: 1}
    first = limited(starts, ends, 10)
    assert first == {A: 8, B: 1, C: 1}
    assert limited(first, ends, 10) == {A: 17, B: 2, C: 1}


def test_a_limit_larger_than_the_backlog_takes_all():
    assert limited({A: 0, B: 5}, {A: 3, B: 5}, 2**63 - 1) == {A: 3, B: 5}
    assert limited({A: 0, B: 5}, {A: 3, B: 5}, None) == {A: 3, B: 5}


def test_limited_batches_reach_the_end():
    at, ends = {A: 0, B: 0, C: 7}, {A: 1000, B: 3, C: 7}
    for _ in range(100):
        after = limited(at, ends, 17)
        assert after == ends or 0 < sum(after.values()) - sum(at.values()) <= 17 + len(ends)
        at = after
    assert at == ends


def test_a_partition_that_shrank_goes_back_to_its_end():
    assert limited({A: 50, B: 0}, {A: 5, B: 100}, 10) == {A: 5, B: 10}


# --- Tasks ------------------------------------------------------------------------------------------


def test_empty_ranges_are_left_out():
    assert ranges_between({A: 3, B: 0, C: 9}, {A: 3, B: 2, C: 4}, {}) == [OffsetRange("t", 1, 0, 2)]


@pytest.mark.parametrize(("at_least", "count"), [(None, 3), (1, 3), (3, 3), (4, 6), (6, 7), (9, 10), (1000, 31)])
def test_minimum_of_tasks_splits_ranges(at_least, count):
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 100, 120), OffsetRange("u", 0, 5, 6)]
    pieces = split(ranges, at_least)
    assert len(pieces) == count
    assert covered([pieces]) == covered([ranges])


def test_a_range_is_cut_evenly():
    assert cut(OffsetRange("t", 0, 10, 20), 3) == [
        OffsetRange("t", 0, 10, 13),
        OffsetRange("t", 0, 13, 16),
        OffsetRange("t", 0, 16, 20),
    ]


def test_small_ranges_share_tasks_and_large_ones_do_not():
    options = SourceOptions("h:1", min_task_records=100)
    small = [OffsetRange("t", p, 0, 30) for p in range(9)]
    assert sizes(tasks(small, options)) == [120, 150]
    large = [OffsetRange("t", p, 0, 3000) for p in range(9)]
    assert sizes(tasks(large, options)) == [3000] * 9
    assert covered(tasks(small + large[:0], options)) == covered([small])


def test_one_task_a_partition_when_asked_for():
    options = SourceOptions("h:1", min_task_records=1)
    assert len(tasks([OffsetRange("t", p, 0, 3) for p in range(9)], options)) == 9


def test_no_task_reads_more_than_the_most():
    options = SourceOptions("h:1", max_task_records=40, min_task_records=1000)
    ranges = [OffsetRange("t", 0, 0, 101), OffsetRange("t", 1, 0, 7), OffsetRange("t", 2, 0, 7)]
    shares = tasks(ranges, options)
    assert max(sizes(shares)) <= 40
    assert covered(shares) == covered([ranges])


def test_a_least_number_of_tasks_wins_over_sharing():
    shares = tasks([OffsetRange("t", p, 0, 3) for p in range(4)], SourceOptions("h:1", min_partitions=4))
    assert len(shares) == 4


def test_nothing_to_read_needs_no_task():
    assert tasks([], SourceOptions("h:1")) == []


# --- What is asked of a cluster ---------------------------------------------------------------------


IDS = {"t": bytes(range(16))}  # "u" is in a cluster without ids


class Cluster:
    """Stands for client and admin: topics as {partition: (start, end)}; times[tp]: offset of any timestamp asked;
    open_from[tp]: first offset of an open transaction."""

    def __init__(self, topics, times=None, open_from=None):
        self.topics = topics
        self.times = times or {}
        self.open_from = open_from or {}

    async def list_topics(self):
        return sorted(self.topics)

    async def refresh_metadata(self, names):
        pass

    def partitions(self, topic):
        return sorted(self.topics.get(topic, ()))

    def topic_id(self, topic):
        return IDS.get(topic)

    async def list_offsets(self, wanted, isolation):
        def answer(tp, what):
            start, end = self.topics[tp.topic][tp.partition]
            if isolation == READ_COMMITTED:
                end = self.open_from.get(tp, end)
            return {"earliest": start, "latest": end}.get(what, self.times.get(tp, -1))

        return {tp: (answer(tp, what), -1, 0) for tp, what in wanted.items()}


@pytest.fixture(autouse=True)
def admin_is_the_cluster(monkeypatch):
    monkeypatch.setattr(planning, "Admin", lambda cluster: cluster)


def batch(cluster, **given):
    options = parse({**ORDERS, **given}, streaming=False)
    return asyncio.run(planning.batch_ranges(cluster, options))


TWO = Cluster({"t": {0: (5, 10), 1: (0, 4)}, "u": {0: (0, 3)}, "__consumer_offsets": {0: (0, 9)}})


def test_ranges_and_their_pieces_know_the_topic_that_they_are_of():
    assert {each.topic_id for each in batch(TWO)} == {IDS["t"]}
    assert {piece.topic_id for each in batch(TWO) for piece in cut(each, 3)} == {IDS["t"]}
    assert {each.topic_id for each in batch(TWO, subscribe="u")} == {None}


def test_a_batch_reads_from_the_start_of_the_log_to_its_end():
    assert batch(TWO) == [OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 0, 4)]


def test_a_batch_between_offsets():
    found = batch(TWO, startingOffsets='{"t": {"0": 7, "1": -2}}', endingOffsets='{"t": {"0": 9, "1": -1}}')
    assert found == [OffsetRange("t", 0, 7, 9), OffsetRange("t", 1, 0, 4)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": '{"t": {"0": 7}}'}, "startingOffsets says nothing of t-1"),
        ({"startingOffsets": '{"t": {"0": 7, "1": 0, "2": 0}}'}, "startingOffsets names t-2"),
        ({"endingOffsets": '{"t": {"0": 11, "1": 4}}'}, "endingOffsets says 11, but t-0 has offsets up to 10"),
        ({"startingOffsets": '{"t": {"0": 9, "1": 0}}', "endingOffsets": '{"t": {"0": 8, "1": 4}}'}, "end at offset 8"),
        ({"subscribe": "t,nowhere"}, "no topic nowhere"),
        ({"startingTimestamp": "77"}, "t-0, t-1 has no record of timestamp 77 or later"),
    ],
)
def test_a_batch_that_cannot_be_says_why(given, said):
    with pytest.raises(SourceError) as caught:
        batch(TWO, **given)
    assert said in str(caught.value)


def test_a_batch_ends_before_the_first_open_transaction():
    cluster = Cluster({"t": {0: (5, 10), 1: (0, 4)}}, open_from={A: 8})
    assert batch(cluster) == [OffsetRange("t", 0, 5, 8), OffsetRange("t", 1, 0, 4)]
    everything = {"kafka.isolation.level": "read_uncommitted"}
    assert batch(cluster, **everything)[0] == OffsetRange("t", 0, 5, 10)
    beyond = {"endingOffsets": '{"t": {"0": 9, "1": 4}}'}
    with pytest.raises(SourceError, match="t-0 has offsets up to 8 of transactions that have ended"):
        batch(cluster, **beyond)
    assert batch(cluster, **beyond, **everything)[0] == OffsetRange("t", 0, 5, 9)


def test_timestamps_become_offsets_and_one_past_the_end_is_the_end():
    cluster = Cluster({"t": {0: (5, 10), 1: (0, 4)}}, {A: 6})
    found = batch(cluster, startingTimestamp="77", startingOffsetsByTimestampStrategy="latest")
    assert found == [OffsetRange("t", 0, 6, 10)]
    assert batch(cluster, endingTimestamp="77") == [OffsetRange("t", 0, 5, 6), OffsetRange("t", 1, 0, 4)]


def partitions(cluster, given, left_out=None):
    options = parse({"kafka.bootstrap.servers": "h:1", **given}, streaming=False)
    return asyncio.run(planning.partitions_of(cluster, options, left_out))


def test_a_pattern_matches_whole_names_and_no_internal_topic():
    assert partitions(TWO, {"subscribePattern": "[tu]"}) == [A, B, TopicPartition("u", 0)]
    assert partitions(TWO, {"subscribePattern": ".*offset.*"}) == []


def test_what_is_gone_is_told_where_it_may_be_left_out():
    for given, found, left_out in (
        ({"subscribe": "t,gone"}, [A, B], ["topic gone"]),
        ({"assign": '{"t": [1, 2], "gone": [0]}'}, [B], ["topic gone", "t-2"]),
    ):
        told = []
        assert partitions(TWO, given, told) == found
        assert told == left_out


def test_assigned_partitions_must_be_there():
    assert partitions(TWO, {"assign": '{"t": [1]}'}) == [B]
    with pytest.raises(SourceError, match="topic t has no partition 2"):
        partitions(TWO, {"assign": '{"t": [2]}'})
