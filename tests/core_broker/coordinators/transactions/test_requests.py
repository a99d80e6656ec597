"""What each request is answered, in the shapes and codes of its versions."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.find import partition_for
from isthmus.core_broker.coordinators.transactions.listing import MAX_WAITING
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import add_partitions_to_txn as apt
from isthmus.protocol.messages import list_transactions as lst
from tests.running import run_by

from .counter import Counter, counted, of_broker

T0, T1 = ("t", 0), ("t", 1)


@run_by(counted)
async def test_a_producer_names_a_timeout_that_the_broker_allows(counter: Counter, /) -> None:
    for timeout_ms in (0, -1, 900_001):
        assert await counter.init(timeout_ms=timeout_ms) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert (await counter.init(timeout_ms=900_000))[0] == E.NONE
    assert (await counter.described()).transaction_timeout_ms == 900_000


@run_by(counted)
async def test_an_unknown_id_and_a_stranger_are_told_so_and_older_clients_by_older_codes(counter: Counter, /) -> None:
    producer = await counter.begun()
    old, other = (producer[0], producer[1] + 9), (producer[0] + 9, 0)
    for version in range(4):
        fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
        for key, given, code in (
            ("x", old, fenced), ("x", other, E.INVALID_PRODUCER_ID_MAPPING),
            ("none", producer, E.INVALID_PRODUCER_ID_MAPPING), ("", producer, E.INVALID_REQUEST),
        ):  # fmt: skip
            assert await counter.add(key, given, T1, version=version) == {T1: code}
            assert await counter.add_offsets(key, given, "g", version=version) == code
            assert await counter.end(key, given, version=version) == (code, -1, -1)
    for version in range(3, 6):
        fenced = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
        assert await counter.init("x", other, version=version) == (fenced, -1, -1)


@run_by(counted)
async def test_partitions_that_do_not_exist_keep_the_others_out(counter: Counter, /) -> None:
    _, *ids = await counter.init()
    producer = ids[0], ids[1]
    refused = {T0: E.OPERATION_NOT_ATTEMPTED, ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION, ("no", 0): 3}
    assert await counter.add("x", producer, T0, ("t", 9), ("no", 0)) == refused
    many = await counter.add_many(of_broker("x", producer, T0, ("t", 9), ("no", 0)))
    assert many == {"x": refused} and counter.current().state.value == "Empty"


@run_by(counted)
async def test_clients_add_no_partitions_of_topics_that_brokers_keep(counter: Counter, /) -> None:
    _, *ids = await counter.init()
    producer = ids[0], ids[1]
    await counter.add_offsets("x", producer, "group")
    kept = ("__consumer_offsets", 0)
    refused = {T0: E.OPERATION_NOT_ATTEMPTED, kept: E.TOPIC_AUTHORIZATION_FAILED}
    assert await counter.add("x", producer, T0, kept) == refused
    assert await counter.add_many(of_broker("x", producer, T0, kept)) == {"x": {T0: E.NONE, kept: E.NONE}}


@run_by(counted)
async def test_what_is_told_to_all_is_told_as_it_was_asked(counter: Counter, /) -> None:
    """A partition named twice, and a topic without partitions."""
    _, *ids = await counter.init()
    topics = [apt.AddPartitionsToTxnTopic(name="t", partitions=[1, 0, 1]), apt.AddPartitionsToTxnTopic(name="u")]
    request = apt.Request(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=ids[0],
        v3_and_below_producer_epoch=ids[1],
        v3_and_below_topics=topics,
    )
    answer = await counter.ask(request, 3)
    rows = [
        (topic.name, [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ]
    assert rows == [("t", [(1, E.NONE), (0, E.NONE), (1, E.NONE)]), ("u", [])]


@run_by(counted)
async def test_a_group_that_commits_offsets_adds_the_partition_that_holds_them(counter: Counter, /) -> None:
    _, *ids = await counter.init()
    image = counter.transactions.host._image
    assert "__consumer_offsets" not in image.topics
    assert await counter.add_offsets("x", (ids[0], ids[1]), "group") == E.NONE
    count = len(image.topics["__consumer_offsets"].partitions)
    assert counter.current().partitions == {("__consumer_offsets", partition_for("group", count))}


@run_by(counted)
async def test_leaders_add_and_verify_for_many_producers_at_once(counter: Counter, /) -> None:
    first, second = await counter.begun("a", T0), await counter.begun("b", T1)
    answers = await counter.add_many(
        of_broker("a", first, T0, T1, verify=True), of_broker("b", second, T0), of_broker("none", first, T0),
        of_broker("", first, T0),
    )  # fmt: skip
    assert answers == {
        "a": {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE},
        "b": {T0: E.NONE},
        "none": {T0: E.INVALID_PRODUCER_ID_MAPPING},
        "": {T0: E.INVALID_REQUEST},
    }
    assert counter.current("a").partitions == {T0} and counter.current("b").partitions == {T0, T1}
    assert counter.current("b").client_version == 2
    assert await counter.add_many() == {}


@run_by(counted, level=0)
async def test_under_a_level_without_longer_records_newer_clients_are_refused(counter: Counter, /) -> None:
    producer = await counter.begun()
    request = apt.Request(transactions=[of_broker("x", producer, T1)])
    answer = await counter.ask(request, 5)
    assert answer.error_code == E.UNSUPPORTED_VERSION and answer.results_by_transaction == []
    assert await counter.end("x", producer) == (E.UNSUPPORTED_VERSION, -1, -1)
    assert await counter.end("x", producer, version=4) == (E.NONE, -1, -1), "the transaction can go on"


@pytest.mark.parametrize(("version", "given"), [(4, (-1, -1)), (5, None)])
@run_by(counted)
async def test_the_end_has_the_next_epoch_for_those_who_know_of_it(counter: Counter, /, version: int, given) -> None:
    producer = await counter.begun()
    answer = await counter.end("x", producer, commit=False, version=version)
    assert answer == (E.NONE, *(given or (producer[0], producer[1] + 1)))


@run_by(counted)
async def test_listing_and_describing(counter: Counter, /) -> None:
    await counter.init("empty")
    producer = await counter.begun("going", T0, T1)
    await counter.sim.sleep(1)

    async def listed(**filters) -> list[str]:
        answer = await counter.ask(lst.Request(**filters), 2)
        assert answer.error_code == E.NONE
        return [f"{each.transactional_id} {each.transaction_state}" for each in answer.transaction_states]

    assert await listed() == ["empty Empty", "going Ongoing"]
    assert await listed(state_filters=["Ongoing", "CompleteAbort"]) == ["going Ongoing"]
    assert await listed(producer_id_filters=[producer[0]]) == ["going Ongoing"]
    assert await listed(duration_filter=500) == ["empty Empty", "going Ongoing"], "one that never began counts as old"
    assert await listed(duration_filter=5_000) == ["empty Empty"]
    assert await listed(state_filters=["ongoing"]) == []
    assert await listed(transactional_id_pattern="g.*") == ["going Ongoing"]
    assert await listed(transactional_id_pattern="oin") == [], "as a whole"
    wrong = await counter.ask(lst.Request(transactional_id_pattern="("), 2)
    assert wrong.error_code == E.INVALID_REGULAR_EXPRESSION
    answer = await counter.ask(lst.Request(state_filters=["ongoing", "Dead", "odd", "odd"]), 2)
    assert answer.unknown_state_filters == ["ongoing", "odd"], "names are taken as they stand"

    asked = lst.Request(transactional_id_pattern="g.*")
    ask = counter.transactions.list_transactions
    *waiting, refused = await counter.inside(lambda: [ask(asked, 2) for _ in range(MAX_WAITING + 1)])
    assert refused.error_code == E.COORDINATOR_LOAD_IN_PROGRESS, "too many answers with a pattern at once"
    await counter.sim.until(lambda: all(each.done for each in waiting), "the others have their answers")
    assert [len(each.answer.transaction_states) for each in waiting] == [1] * MAX_WAITING
    assert await listed(transactional_id_pattern=".*") == ["empty Empty", "going Ongoing"]

    going = await counter.described("going")
    assert (going.error_code, going.transaction_state, going.producer_id, going.producer_epoch) == (
        0,
        "Ongoing",
        *producer,
    )
    assert [(topic.topic, topic.partitions) for topic in going.topics] == [("t", [0, 1])]
    assert going.transaction_start_time_ms == counter.current("going").start_ms > 0
    assert (await counter.described("")).error_code == E.INVALID_REQUEST
    assert (await counter.described("none")).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    counts = {state.value: count for state, count in counter.transactions.counts().items() if count}
    assert counts == {"Empty": 1, "Ongoing": 1}
