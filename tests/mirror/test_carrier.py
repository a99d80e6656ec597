"""The carrier's rules, against a source and a target that are scripts."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import ConnectionLost
from isthmus.client.raw import RawFetch
from isthmus.mirror import carrier as carrier_module
from isthmus.mirror.carrier import Carrier
from isthmus.mirror.link import Limits, MirrorLink
from isthmus.mirror.partition import PartitionMirror, State
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import mirror_append
from isthmus.runtime import Runtime

ID = b"t" * 16


def batch(base: int, count: int = 2, epoch: int = 3) -> bytes:
    return bytes(records.build_batch([(0, None, b"v", ())] * count, base_offset=base, partition_leader_epoch=epoch))


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

    async def refresh_metadata(self, names: Any) -> None:
        pass

    def answer(self, number: int, code: int = 0, next_offset: int = 0, next_epoch: int = 3) -> None:
        request, future = self.sent[number]
        parts = [
            mirror_append.MirrorAppendPartitionResponse(
                index=part.index, error_code=code, error_message="said so", next_offset=next_offset or part.range_to,
                next_epoch=next_epoch,
            )
            for part in request.topics[0].partitions
        ]  # fmt: skip
        topic = mirror_append.MirrorAppendTopicResponse(name=request.topics[0].name, partitions=parts)
        future.set_result(mirror_append.Response(topics=[topic]))


def make(partitions: int = 1, **limits: Any) -> tuple[Carrier, Target, list[PartitionMirror]]:
    source = SimpleNamespace(
        cluster_id="source", topic_id=lambda topic: ID, leader=lambda tp: 1, refresh_metadata=_nothing
    )
    target = Target()
    runtime = Runtime(random.Random(1), lambda: 1_000, lambda: 0)
    made = Carrier(MirrorLink("l", "a", ["t"], limits=Limits(**limits)), source, target, runtime)  # type: ignore[arg-type]
    for index in range(partitions):
        each = made.partitions[TopicPartition("t", index)] = PartitionMirror("t", index, "a.t", ID, 0)
        each.probe_answered(0, -1)
        each.compared = True
    return made, target, list(made.partitions.values())


async def _nothing(*_: Any) -> None:
    pass


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


def test_appends_follow_each_other_without_waiting_and_at_the_right_offsets(monkeypatch):
    async def scenario():
        carrier, target, [each] = make()
        data = iter([batch(0), batch(2)])
        answers(monkeypatch, lambda _: next(data))
        for _ in range(2):
            await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
        parts = [request.topics[0].partitions[0] for request, _ in target.sent]
        assert [(p.range_from, p.range_to, p.source_leader_epoch) for p in parts] == [(0, 2, 3), (2, 4, 3)]
        assert carrier.under_way_bytes == 2 * len(batch(0))
        target.answer(0)
        target.answer(1)
        await asyncio.gather(*carrier.appends)
        assert (each.next_offset, carrier.under_way_bytes, each.in_flight) == (4, 0, 0)

    asyncio.run(scenario())


def test_what_waits_for_its_turn_is_not_sent_after_what_went_before_failed(monkeypatch):
    async def scenario():
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
        assert "the target ends at offset 7 of leader epoch 9, the source writes leader epoch 3" in each.reason

    asyncio.run(scenario())


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
def test_a_refused_append_holds_its_partition_or_makes_it_doubtful(monkeypatch, code, state):
    async def scenario():
        carrier, target, [each] = make()
        answers(monkeypatch, lambda _: batch(0))
        await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
        target.answer(0, code, next_offset=50)
        await asyncio.gather(*carrier.appends)
        assert (each.state, each.probed) == (state, False)
        if each.held:
            assert "a.t-0" in each.reason and "said so" in each.reason

    asyncio.run(scenario())


def test_a_partition_whose_bytes_are_no_batches_fails_alone(monkeypatch):
    broken = bytearray(batch(0))
    broken[16] = 9  # magic

    async def scenario():
        carrier, target, [bad, good] = make(2)
        answers(monkeypatch, lambda index: batch(0) if index else bytes(broken))
        await carrier._dispatch(await carrier._fetch(1, [bad, good], 1 << 20))
        assert bad.state is State.FAILED and "t-0: what the source holds from offset 0 on" in bad.reason
        assert [p.index for p in target.sent[0][0].topics[0].partitions] == [1]

    asyncio.run(scenario())


def test_who_waited_longest_is_asked_for_first(monkeypatch):
    async def scenario():
        carrier, _, partitions = make(3)
        busy = 0

        def script(index: int) -> bytes:
            return batch(partitions[index].fetch_offset) if index == busy else b""

        asked = answers(monkeypatch, script)
        for busy in (0, 0, 1, 1, 2, 2, 0, 0):  # noqa: B007
            await carrier._fetch(1, sorted(partitions, key=lambda each: each.served), 1 << 20)
        assert [order[-1] for order in asked[1:]] == [0, 0, 1, 1, 2, 2, 0]

    asyncio.run(scenario())


def test_a_target_that_is_away_makes_doubtful_and_gives_the_budget_back(monkeypatch):
    async def scenario():
        carrier, target, [each] = make()
        target.broken = True
        answers(monkeypatch, lambda _: batch(0))
        await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
        assert (each.probed, carrier.under_way_bytes, each.state) == (False, 0, State.CATCHING_UP)
        assert each.reason == "a.t-0: the target is away"

    asyncio.run(scenario())


def test_another_topic_by_the_same_name_is_not_appended(monkeypatch):
    async def scenario():
        carrier, target, [each] = make()
        carrier.source.topic_id = lambda topic: b"n" * 16
        answers(monkeypatch, lambda _: batch(0))
        await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
        assert each.state is State.SOURCE_RECREATED and not target.sent
        assert "delete a.t in the target" in each.reason

    asyncio.run(scenario())


def test_a_history_that_parts_from_the_targets_is_named_with_offset_and_epoch(monkeypatch):
    async def scenario():
        carrier, target, [each] = make()
        each.probe_answered(10, 4)
        answers(monkeypatch, lambda _: {"diverging_epoch": (4, 6)})
        await carrier._dispatch(await carrier._fetch(1, [each], 1 << 20))
        assert each.state is State.DIVERGED and not target.sent
        assert "ends at offset 10 of leader epoch 4" in each.reason and "from offset 6 on" in each.reason

    asyncio.run(scenario())
