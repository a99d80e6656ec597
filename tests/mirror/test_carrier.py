"""The carrier's rules, against a source and a target that are scripts."""

import asyncio
import random
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import ConnectionLost
from isthmus.client.raw import RawFetch
from isthmus.mirror import carrier as carrier_module
from isthmus.mirror import verify as verify_module
from isthmus.mirror.carrier import Carrier
from isthmus.mirror.link import Limits, MirrorLink
from isthmus.mirror.partition import PartitionMirror, State
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import mirror_append
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

ID = b"t" * 16


def batch(base: int, count: int = 2, epoch: int = 3) -> bytes:
    return bytes(records.build_batch([(0, None, b"v", ())] * count, base_offset=base, partition_leader_epoch=epoch))


def end_of(part: Any) -> int:
    """The offset after an append's last record, or the one at which it has an empty log begin."""
    if not part.records:
        return int(part.source_log_start_offset)
    return [header.next_offset for _, header in records.walk(part.records)][-1]


class Source:
    """Says who leads, and keeps which topics' metadata was asked for."""

    cluster_id = "source"

    def __init__(self) -> None:
        self.refreshed: list[list[str]] = []

    def topic_id(self, topic: str) -> bytes:
        return ID

    def leader(self, tp: Any) -> int:
        return 1

    async def refresh_metadata(self, names: Any, *, timeout_ms: float) -> None:
        self.refreshed.append(list(names))


class Target:
    """One connection that keeps what is sent; `answer` says what comes back."""

    cluster_id = "target"

    def __init__(self) -> None:
        self.sent: list[tuple[mirror_append.Request, asyncio.Future[Any]]] = []
        self.broken = False

    def leader(self, tp: Any) -> int:
        return 1

    async def connection(self, node: Any = None, lane: str = "") -> Any:
        if self.broken:
            raise ConnectionLost("the target is away")
        return self

    async def writable(self) -> None:
        await asyncio.sleep(0)

    def send(self, api: Any, request: Any, timeout_ms: float) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent.append((request, future))
        return future

    async def refresh_metadata(self, names: Any, *, timeout_ms: float) -> None:
        pass

    def answer(self, number: int, code: int = 0, next_offset: int = 0, next_epoch: int = 3) -> None:
        request, future = self.sent[number]
        parts = [
            mirror_append.MirrorAppendPartitionResponse(
                index=part.index, error_code=code, error_message="said so", next_offset=next_offset or end_of(part),
                next_epoch=next_epoch,
            )
            for part in request.topics[0].partitions
        ]  # fmt: skip
        topic = mirror_append.MirrorAppendTopicResponse(name=request.topics[0].name, partitions=parts)
        future.set_result(mirror_append.Response(topics=[topic]))


def make(partitions: int = 1, **limits: Any) -> tuple[Carrier, Target, list[PartitionMirror]]:
    source = Source()
    target = Target()
    runtime = Runtime(random.Random(1), lambda: 1_000, lambda: 0)
    made = Carrier(MirrorLink("l", "a", ["t"], limits=Limits(**limits)), source, target, runtime)  # type: ignore[arg-type]
    for index in range(partitions):
        each = made.partitions[TopicPartition("t", index)] = PartitionMirror("t", index, "a.t", ID, 0)
        each.probe_answered(0, -1)
        each.compared = True
    return made, target, list(made.partitions.values())


def answers(monkeypatch: pytest.MonkeyPatch, script: Any) -> list[list[int]]:
    """Fetches are answered by script(partition) -> bytes; the order in which partitions were asked for."""
    asked: list[list[int]] = []

    async def fetch_raw(client: Any, wanted: Any, **_: Any) -> list[RawFetch]:
        asked.append([tp.partition for tp in wanted])
        found = []
        for tp in wanted:
            said = script(tp.partition)
            extra = said if isinstance(said, dict) else {"records": memoryview(said)}
            found.append(RawFetch(tp, 0, 100, 100, 0, None, memoryview(b""))._replace(**extra))
        return found

    monkeypatch.setattr(carrier_module, "fetch_raw", fetch_raw)
    return asked


@run_by(in_loop)
async def test_appends_follow_each_other_without_waiting_and_at_the_right_offsets(monkeypatch):
    carrier, target, [each] = make()
    data = iter([batch(0), batch(2)])
    answers(monkeypatch, lambda _: next(data))
    for _ in range(2):
        await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    parts = [request.topics[0].partitions[0] for request, _ in target.sent]
    assert [(p.range_from, end_of(p), p.source_leader_epoch) for p in parts] == [(0, 2, 3), (2, 4, 3)]
    assert carrier.under_way_bytes == 2 * len(batch(0))
    target.answer(0)
    target.answer(1)
    await asyncio.gather(*carrier.appends)
    assert (each.next_offset, carrier.under_way_bytes, each.in_flight) == (4, 0, 0)


@run_by(in_loop)
async def test_what_waits_for_its_turn_is_not_sent_after_what_went_before_failed(monkeypatch):
    carrier, target, [each] = make(appends_in_flight=1)
    data = iter([batch(0), batch(2)])
    answers(monkeypatch, lambda _: next(data))
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    second = asyncio.ensure_future(carrier._dispatch(await carrier._fetch(1, [each], 1 << 20)))
    await asyncio.sleep(0)
    target.answer(0, ErrorCode.FENCED_LEADER_EPOCH, next_offset=7, next_epoch=9)
    await second
    assert len(target.sent) == 1
    assert each.state is State.DIVERGED and carrier.under_way_bytes == 0
    assert "the target ends at offset 7 of leader epoch 9, but the source writes leader epoch 3" in each.reason


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.CORRUPT_MESSAGE, State.FAILED),
        (ErrorCode.POLICY_VIOLATION, State.FAILED),
        (ErrorCode.INCONSISTENT_TOPIC_ID, State.SOURCE_RECREATED),
        (ErrorCode.OFFSET_OUT_OF_RANGE, State.CATCHING_UP),  # another worker was here: ask, and go on
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, State.CATCHING_UP),
    ],
)
@run_by(in_loop)
async def test_a_refused_append_holds_its_partition_or_makes_it_doubtful(monkeypatch, code, state):
    carrier, target, [each] = make()
    answers(monkeypatch, lambda _: batch(0))
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    target.answer(0, code, next_offset=50)
    await asyncio.gather(*carrier.appends)
    assert (each.state, each.probed) == (state, False)
    if each.held:
        assert "a.t-0" in each.reason and "said so" in each.reason


@run_by(in_loop)
async def test_a_partition_whose_bytes_are_no_batches_fails_alone(monkeypatch):
    broken = bytearray(batch(0))
    broken[16] = 9  # magic
    carrier, target, [bad, good] = make(2)
    answers(monkeypatch, lambda index: batch(0) if index else bytes(broken))
    await carrier._dispatch(await carrier._fetch(1, [bad, good], 1 << 20))
    assert bad.state is State.FAILED and "t-0: the source's data from offset 0 on" in bad.reason
    assert [p.index for p in target.sent[0][0].topics[0].partitions] == [1]


@run_by(in_loop)
async def test_who_waited_longest_is_asked_for_first(monkeypatch):
    carrier, _, partitions = make(3)
    busy = 0

    def script(index: int) -> bytes:
        return batch(partitions[index].fetch_offset) if index == busy else b""

    asked = answers(monkeypatch, script)
    for busy in (0, 0, 1, 1, 2, 2, 0, 0):  # noqa: B007
        await carrier._fetch(1, sorted(partitions, key=lambda each: each.served), 1 << 20)
    assert [order[-1] for order in asked[1:]] == [0, 0, 1, 1, 2, 2, 0]


@run_by(in_loop)
async def test_full_partitions_get_as_much_as_each_other_where_an_answer_holds_all_but_one(monkeypatch):
    carrier, _, partitions = make(5)
    answered = [0] * 5
    left = 0

    def script(index: int) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            return b""
        answered[index] += 1
        return batch(partitions[index].fetch_offset)

    answers(monkeypatch, script)
    for _ in range(10):
        left = 4
        await carrier._fetch(1, sorted(partitions, key=lambda each: each.served), 1 << 20)
    assert answered == [8] * 5


@run_by(in_loop)
async def test_a_target_that_is_away_makes_doubtful_and_gives_the_budget_back(monkeypatch):
    carrier, target, [each] = make()
    target.broken = True
    answers(monkeypatch, lambda _: batch(0))
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    assert (each.probed, carrier.under_way_bytes, each.state) == (False, 0, State.CATCHING_UP)
    assert each.reason == "a.t-0: the target is away"


@run_by(in_loop)
async def test_another_topic_by_the_same_name_is_not_appended(monkeypatch):
    carrier, target, [each] = make()
    carrier.source.topic_id = lambda topic: b"n" * 16
    answers(monkeypatch, lambda _: batch(0))
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    assert each.state is State.SOURCE_RECREATED and not target.sent
    assert "delete a.t in the target" in each.reason


@run_by(in_loop)
async def test_a_history_that_parts_from_the_targets_is_named_with_offset_and_epoch(monkeypatch):
    carrier, target, [each] = make()
    each.probe_answered(10, 4)
    answers(monkeypatch, lambda _: {"diverging_epoch": (4, 6)})
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    assert each.state is State.DIVERGED and not target.sent
    assert "ends at offset 10 of leader epoch 4" in each.reason and "from offset 6 on" in each.reason


@run_by(in_loop)
async def test_the_late_answer_of_a_node_that_leads_no_more_is_dropped(monkeypatch):
    """Its successor was asked meanwhile, and has answered before."""
    carrier, target, [each] = make()
    each.probe_answered(2, 3)

    def late(_: int) -> bytes:
        each.fetched(memoryview(batch(2)))
        return batch(3)

    answers(monkeypatch, late)
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    assert not each.held and not target.sent
    assert each.fetch_offset == 4


LASTING = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    999,  # of a Kafka to come
)


@pytest.mark.parametrize("code", LASTING)
@run_by(in_loop)
async def test_what_the_source_refuses_for_good_is_a_state_of_its_partition_and_asked_for_seldom(monkeypatch, code):
    carrier, target, [bad, good] = make(2, appends_in_flight=12)
    answers(monkeypatch, lambda index: batch(good.fetch_offset) if index else {"error_code": code})
    backoffs = []
    for _ in range(12):
        bad.probe_answered(0, -1)
        bad.compared = True
        await carrier._dispatch(await carrier._fetch(1, [bad, good], 1 << 20))
        assert bad.state is State.SOURCE_UNAVAILABLE
        backoffs.append(bad.next_try_ms - 1_000)
    assert backoffs[:4] == [100, 200, 400, 800] and backoffs[-1] == 30_000
    status = bad.status(5_000)
    assert (status["state"], status["since_ms"], status["next_try_ms"]) == ("SOURCE_UNAVAILABLE", 1_000, 31_000)
    assert bad.reason.startswith("t-0: the source refuses to give its records: ") and f"({int(code)})" in bad.reason
    assert [p.index for request, _ in target.sent for p in request.topics[0].partitions] == [1] * 12
    assert good.state is State.CATCHING_UP and not bad.probed and not bad.compared
    # Only what fresh metadata may change is asked for, and only of that topic.
    assert all(asked == ["t"] for asked in carrier.source.refreshed)
    assert bool(carrier.source.refreshed) == (code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE))
    answers(monkeypatch, lambda index: b"")
    bad.probe_answered(0, -1)
    await carrier._fetch(1, [bad], 1 << 20)
    assert (bad.reason, bad.next_try_ms, bad.source_backoff_ms) == ("", -1, 0)


@run_by(in_loop)
async def test_what_passes_by_itself_is_a_state_too_and_asked_for_often(monkeypatch):
    carrier, _, [each] = make()
    answers(monkeypatch, lambda _: {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER})
    for _ in range(12):
        each.probe_answered(0, -1)
        await carrier._fetch(1, [each], 1 << 20)
    assert each.state is State.SOURCE_UNAVAILABLE and "NOT_LEADER_OR_FOLLOWER" in each.reason
    assert (each.source_backoff_ms, each.next_try_ms) == (2_000, -1)
    assert carrier.source.refreshed == [["t"]] * 12


@run_by(in_loop)
async def test_offsets_that_may_not_be_asked_for_concern_their_partition_alone(monkeypatch):
    carrier, target, [bad, good] = make(2)
    answers(monkeypatch, lambda index: batch(0) if index else {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE})

    async def list_offsets(self: Any, wanted: Any) -> Any:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "offsets of t-0")

    monkeypatch.setattr(carrier_module.Admin, "list_offsets", list_offsets)
    await carrier._dispatch(await carrier._fetch(1, [bad, good], 1 << 20))
    assert bad.state is State.SOURCE_UNAVAILABLE and bad.reason.endswith(": offsets of t-0")
    assert [p.index for p in target.sent[0][0].topics[0].partitions] == [1]


@pytest.mark.parametrize(
    ("position", "start", "end", "state", "fetch_offset"),
    [
        ((0, -1), 5, 9, State.CATCHING_UP, 5),  # a new copy begins where the source does, not where it ends
        ((4, 3), 5, 9, State.GAP, 4),
        ((5, 3), 5, 9, State.CATCHING_UP, 5),  # asked again: the source's log moved meanwhile
        ((9, 3), 5, 9, State.CATCHING_UP, 9),
        ((10, 3), 5, 9, State.DIVERGED, 10),
    ],
)
@run_by(in_loop)
async def test_an_offset_out_of_range_is_a_beginning_a_gap_or_a_loss_of_the_source(
    monkeypatch, position, start, end, state, fetch_offset
):
    carrier, _, [each] = make()
    each.probe_answered(*position)
    answers(monkeypatch, lambda _: {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE})

    async def list_offsets(self: Any, wanted: Any) -> Any:
        return {tp: ({"earliest": start, "latest": end}[which], -1, -1) for tp, which in wanted.items()}

    monkeypatch.setattr(carrier_module.Admin, "list_offsets", list_offsets)
    assert await carrier._fetch(1, [each], 1 << 20) == []
    assert (each.state, each.fetch_offset) == (state, fetch_offset)


@pytest.mark.parametrize(
    ("position", "records", "sent"),
    [
        ((0, -1), b"", [(0, 5, -1, -1, b"")]),  # an empty log is to begin there
        ((0, -1), batch(5), [(0, 5, 3, -1, batch(5))]),
        ((5, -1), b"", []),  # it begins there already
        ((5, 3), b"", []),
    ],
)
@run_by(in_loop)
async def test_an_empty_copy_is_told_where_the_source_begins(monkeypatch, position, records, sent):
    carrier, target, [each] = make()
    each.probe_answered(*position)
    end = 7 if records else 5
    answers(
        monkeypatch,
        lambda _: {"records": memoryview(records), "log_start_offset": 5, "high_watermark": end},
    )
    each.fetch_offset = 5
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    parts = [request.topics[0].partitions[0] for request, _ in target.sent]
    found = [
        (p.range_from, p.source_log_start_offset, p.source_leader_epoch, p.previous_leader_epoch, p.records or b"")
        for p in parts
    ]
    assert found == sent
    if sent:
        target.answer(0)
        await asyncio.gather(*carrier.appends)
    assert each.state is (State.MIRRORING if sent or not records else State.CATCHING_UP)
    assert (each.next_offset, each.lag_records) == (end, 0)


@pytest.mark.parametrize(("epoch", "is_kept"), [(3, True), (4, False)])
@run_by(in_loop)
async def test_a_probe_is_held_against_what_was_appended_and_not_against_what_was_fetched_since(
    monkeypatch, epoch, is_kept
):
    carrier, target, [each] = make()
    data = iter([batch(0), batch(2, epoch=4)])
    answers(monkeypatch, lambda _: next(data))
    await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
    target.answer(0)
    await asyncio.gather(*carrier.appends)
    each.asking = True

    async def request(wanted: Any, *_: Any) -> mirror_append.Response:
        """Meanwhile the carrier of the source's new leader has fetched, and waits for its turn to append."""
        parcels.extend(await carrier._fetch(2, [each], 1 << 20))
        part = mirror_append.MirrorAppendPartitionResponse(index=0, next_offset=2, next_epoch=epoch)
        topic = mirror_append.MirrorAppendTopicResponse(name="a.t", partitions=[part])
        return mirror_append.Response(topics=[topic])

    parcels: list[Any] = []
    target.request = request
    await carrier._probe([each])
    await carrier._dispatch(parcels)
    parts = [request.topics[0].partitions[0] for request, _ in target.sent]
    assert [(p.range_from, p.source_leader_epoch) for p in parts] == [(0, 3), (2, 4)][: 1 + is_kept]
    assert (each.asking, each.append_epoch) == (False, 4)


@pytest.mark.parametrize("side", ["source", "target"])
@run_by(in_loop)
async def test_a_partition_that_cannot_be_compared_is_not_carried(monkeypatch, side):
    carrier, target, [each] = make()
    target.leader_of = lambda tp, timeout_ms: asyncio.sleep(0, 1)
    each.probe_answered(4, 3)
    each.compared = False

    async def fetch_raw(client: Any, wanted: Any, **_: Any) -> list[RawFetch]:
        [tp] = wanted
        refuses = client is (carrier.source if side == "source" else target)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if refuses else ErrorCode.NONE
        return [RawFetch(tp, code, 4, 4, 0, None, memoryview(b"" if refuses else batch(2)))]

    monkeypatch.setattr(verify_module, "fetch_raw", fetch_raw)
    await carrier._compare(1, [each])
    assert not each.compared and not each.probed and "TOPIC_AUTHORIZATION_FAILED" in each.reason
    assert each.state is (State.SOURCE_UNAVAILABLE if side == "source" else State.CATCHING_UP)
