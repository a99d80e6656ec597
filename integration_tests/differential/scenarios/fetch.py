"""Fetch (1) without sessions: what is read, when it is answered, and what is refused."""

from __future__ import annotations

from isthmus.protocol.messages import fetch as m

from ..batches import batch
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import LONG_MS, WAIT_MS, fetch_partition, fetch_request, fill

SCENARIOS = Scenarios()
COMMITTED = 1


@SCENARIOS.success(1)
def reads_what_was_appended(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    case.compare(fetch_request(case, 0, topic_id))
    case.compare(fetch_request(case, 4, topic_id))  # the batch that holds the offset, whole
    case.compare(fetch_request(case, 6, topic_id))  # the end: nothing yet


@SCENARIOS.success(1, ends=True)
def one_batch_comes_even_if_it_is_too_large(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    for limit in (10, 0, -1):
        case.compare(fetch_request(case, 0, topic_id, max_bytes=limit))
        case.compare(fetch_request(case, 0, topic_id, partition_max_bytes=limit))


@SCENARIOS.success(1, ends=True)
def a_second_batch_that_does_not_fit_is_cut(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 3)
    for limit in (200, 230, 300):
        case.compare(fetch_request(case, 0, topic_id, partition_max_bytes=limit))
        case.compare(fetch_request(case, 0, topic_id, max_bytes=limit))


@SCENARIOS.success(1, ends=True)
def partitions_share_the_limit_in_order(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in (0, 1, 2):
        fill(case, topic_id, partition=index)
    for limit in (1, 150, 300, 1 << 20):
        for order in ((0, 1, 2), (2, 0, 1)):
            rows = [fetch_partition(0, index) for index in order]
            topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
            case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=limit, topics=[topic]))


@SCENARIOS.success(1, ends=True)
def partition_that_is_named_twice_in_a_fetch(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    fill(case, topic_id, 2)
    rows = [fetch_partition(0), fetch_partition(0, 1), fetch_partition(3)]
    topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
    case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=1 << 20, topics=[topic]))


@SCENARIOS.success(1, ends=True)
def no_topics_to_fetch(case: Case) -> None:
    case.compare(m.Request(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1 << 20, topics=[]))


@SCENARIOS.success(1, ends=True)
def reads_committed(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, isolation_level=COMMITTED))
    case.compare(fetch_request(case, 3, topic_id, isolation_level=COMMITTED))


@SCENARIOS.success(1, ends=True)
def waits_for_enough_bytes(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, min_bytes=1 << 20))
    case.compare(fetch_request(case, 3, topic_id, min_bytes=1))
    case.compare(fetch_request(case, 3, topic_id, min_bytes=1, max_wait_ms=0))


@SCENARIOS.success(1, ends=True)
def is_answered_when_records_come(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    rows = [fetch_partition(0), fetch_partition(0, 1)]
    topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
    waits = m.Request(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    case.compare_waiting(waits, lambda: fill(case, topic_id, partition=1))


@SCENARIOS.success(1, ends=True)
def is_answered_when_enough_has_come(case: Case) -> None:
    """From several partitions together, one of which had something already."""
    topic_id = case.topic(partitions=3)
    fill(case, topic_id, partition=2)
    rows = [fetch_partition(0, index) for index in range(3)]
    topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
    waits = m.Request(max_wait_ms=LONG_MS, min_bytes=3 * len(batch()) - 5, max_bytes=1 << 20, topics=[topic])

    def append() -> None:
        for index in (0, 1):
            fill(case, topic_id, partition=index)

    case.compare_waiting(waits, append)


@SCENARIOS.success(1, ends=True)
def what_there_is_no_room_for_is_enough_all_the_same(case: Case) -> None:
    """The second partition's batch, which the answer cannot hold."""
    topic_id = case.topic(partitions=2)
    for index in (0, 1):
        fill(case, topic_id, partition=index)
    topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=[fetch_partition(0), fetch_partition(0, 1)])
    size = len(batch())
    wanted = m.Request(max_wait_ms=LONG_MS, min_bytes=size + 5, max_bytes=size + 5, topics=[topic])
    case.compare_waiting(wanted, lambda: None)


@SCENARIOS.success(1, ends=True)
def a_batch_counts_up_to_the_limit_of_its_partition(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    rows = [fetch_partition(0, 0, partition_max_bytes=1), *(fetch_partition(0, index) for index in (1, 2))]
    topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
    waits = m.Request(max_wait_ms=LONG_MS, min_bytes=2 * len(batch()), max_bytes=1 << 20, topics=[topic])

    def append() -> None:
        fill(case, topic_id, 20)  # by the end of which the fetch is there
        for index in (1, 2):
            fill(case, topic_id, partition=index)

    case.compare_waiting(waits, append)


@SCENARIOS.success(1, ends=True)
def a_fetch_ends_where_a_segment_ends(case: Case) -> None:
    topic_id = case.topic(segment_bytes=str(1 << 20))
    fill(case, topic_id, 3, count=1, value=bytes(600_000))
    for offset in (0, 1, 2):
        case.compare(fetch_request(case, offset, topic_id, partition_max_bytes=1 << 22, max_bytes=1 << 22))


@SCENARIOS.success(1, ends=True)
def reads_from_a_start_within_a_batch(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id, 2)
    case.delete_records(1)
    case.compare(fetch_request(case, 1, topic_id))
    case.compare(fetch_request(case, 0, topic_id))


@SCENARIOS.success(1, ends=True)
def reads_for_debuggers(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    who = {"replica_state": m.ReplicaState(replica_id=-2)} if case.version >= 15 else {"replica_id": -2}
    for offset in (0, 3, 4):
        case.compare(fetch_request(case, offset, topic_id, **who))


@SCENARIOS.success(1, ends=True)
def replicas_that_are_none_read_what_is_committed(case: Case) -> None:
    """But -3, which is a log that moves to another directory of its broker."""
    topic_id = case.topic()
    fill(case, topic_id)
    for replica_id in (-2, -3, -4):
        state = m.ReplicaState(replica_id=replica_id)
        who = {"replica_state": state} if case.version >= 15 else {"replica_id": replica_id}
        for offset in (0, 3):
            case.compare(fetch_request(case, offset, topic_id, isolation_level=COMMITTED, **who))


@SCENARIOS.success(1, ends=True)
def reads_committed_of_what_does_not_fit(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in range(3):
        fill(case, topic_id, 2, partition=index)
    for limits in ((1 << 20, 1, 0), (1, 1, 150), (0, 0, 1), (1 << 20, 61, 300)):
        rows = [fetch_partition(0, index, partition_max_bytes=limit) for index, limit in enumerate(limits)]
        topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
        for limit in (1 << 20, 300):
            case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=limit, isolation_level=COMMITTED, topics=[topic]))


@SCENARIOS.error(1, since=13, ends=True)
def fetch_of_a_topic_that_was_made_again(case: Case) -> None:
    before = case.topic()
    fill(case, before)
    case.delete_topic()
    case.topic()
    case.compare(fetch_request(case, 0, before))


@SCENARIOS.success(1, since=9, ends=True)
def knows_the_leader_epoch(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, current_leader_epoch=0))


@SCENARIOS.success(1, since=12, ends=True)
def knows_the_epoch_of_what_it_read(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 3, topic_id, last_fetched_epoch=0))
    case.compare(fetch_request(case, 0, topic_id, last_fetched_epoch=0, current_leader_epoch=0))


@SCENARIOS.error(1, since=12, ends=True)
def read_what_the_leader_never_had(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 9, topic_id, last_fetched_epoch=0))
    case.compare(fetch_request(case, 3, topic_id, last_fetched_epoch=7))


@SCENARIOS.error(1)
def fetch_offset_out_of_range(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    for offset in (4, 100, -1, -2, 2**62):
        case.compare(fetch_request(case, offset, topic_id))


@SCENARIOS.error(1)
def fetch_unknown_topic(case: Case) -> None:
    case.compare(fetch_request(case, 0, NO_SUCH_ID))
    case.compare(fetch_request(case, 0, bytes(16)))


@SCENARIOS.error(1, ends=True)
def fetch_unknown_partition(case: Case) -> None:
    topic_id = case.topic()
    for index in (7, -1):
        case.compare(fetch_request(case, 0, topic_id, partition=index))


@SCENARIOS.error(1, ends=True)
def unknown_topics_come_after_known_ones(case: Case) -> None:
    topic_id = case.topic(partitions=2)
    fill(case, topic_id, partition=1)
    topics = [
        m.FetchTopic(topic=case.name + "-no", topic_id=NO_SUCH_ID, partitions=[fetch_partition(0)]),
        m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=[fetch_partition(0, i) for i in (7, 0, 1)]),
    ]
    case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=1 << 20, topics=topics))


@SCENARIOS.error(1, ends=True)
def unknown_ids_come_before_unknown_partitions(case: Case) -> None:
    topic_id = case.topic(partitions=2)

    def known(*indexes: int) -> m.FetchTopic:
        return m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=[fetch_partition(0, i) for i in indexes])

    def unknown(*indexes: int) -> m.FetchTopic:
        rows = [fetch_partition(0, i) for i in indexes]
        return m.FetchTopic(topic=case.name + "-no", topic_id=NO_SUCH_ID, partitions=rows)

    for topics in ([known(9), unknown(0), known(7)], [known(8, 1), unknown(1, 0), known(7, 0), unknown(2)]):
        case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=1 << 20, topics=topics))


@SCENARIOS.error(1, since=9, ends=True)
def fetch_with_a_leader_epoch_to_come(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, current_leader_epoch=9))
    case.compare(fetch_request(case, 100, topic_id, current_leader_epoch=9))


@SCENARIOS.success(1, until=9, ends=True)
def zstd_for_consumers_that_do_not_know_it(case: Case) -> None:
    topic_id = case.topic(compression_type="zstd")
    fill(case, topic_id, codec="zstd")
    case.compare(fetch_request(case, 0, topic_id))


@SCENARIOS.error(1, ends=True)
def fetch_as_a_replica_that_is_none(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    who = {"replica_state": m.ReplicaState(replica_id=4711)} if case.version >= 15 else {"replica_id": 4711}
    case.compare(fetch_request(case, 0, topic_id, **who))


@SCENARIOS.error(1, since=12, ends=True)
def consumer_of_another_cluster(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, cluster_id="another"))


@SCENARIOS.success(1, since=11, ends=True)
def consumer_in_a_rack(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    case.compare(fetch_request(case, 0, topic_id, rack_id="rack-1"))


@SCENARIOS.error(1)
def fetch_at_an_isolation_level_that_is_none(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    for level in (2, -1):
        case.compare(fetch_request(case, 0, topic_id, isolation_level=level))


@SCENARIOS.error(1, ends=True)
def limits_below_zero(case: Case) -> None:
    topic_id = case.topic()
    fill(case, topic_id)
    for offset in (0, 3, 4, -1):
        case.compare(fetch_request(case, offset, topic_id, partition_max_bytes=-1))
        case.compare(fetch_request(case, offset, topic_id, max_bytes=-1))


@SCENARIOS.error(1, ends=True)
def a_limit_below_zero_is_for_the_first_partition(case: Case) -> None:
    topic_id = case.topic(partitions=3)
    for index in (0, 1, 2):
        fill(case, topic_id, partition=index)
    for first in (0, 3, 100):
        for index in (0, 7):
            rows = [fetch_partition(first, index), fetch_partition(0, 1), fetch_partition(0, 2)]
            topic = m.FetchTopic(topic=case.name, topic_id=topic_id, partitions=rows)
            case.compare(m.Request(max_wait_ms=WAIT_MS, max_bytes=-1, topics=[topic]))
