"""What is in a transaction, and in what order; what a refused one means."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import BufferFull, OperationTimeout, ProducerFailed, ProducerFenced, TransactionAborted
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.runtime import system
from isthmus.streams import App, AppError, ChangelogError, StreamsError
from isthmus.streams.api.outgoing import Outgoing
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.stores.global_store import GlobalStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.errors import CommitRefused
from isthmus.streams.runtime import commits as commits_module
from isthmus.streams.runtime.commits import FENCED_MAX, Commits
from tests.running import in_loop, run_by

from .fakes import PLAIN, TRANSACTIONAL, Journal, turns

ALO, EOS = "at_least_once", "exactly_once"
CHANGELOG = "app-t-changelog"


class Group:
    """A consumer that commits plain offsets."""

    def __init__(self) -> None:
        self.generation = 1
        self.offsets: list[dict[TopicPartition, int]] = []
        self.error: Exception | None = None

    def group_metadata(self) -> str:
        return f"generation {self.generation}"

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        if self.error is not None:
            raise self.error
        self.offsets.append(offsets)


class World:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, guarantee: str = ALO, *, has_table: bool = True, **conf: Any
    ) -> None:
        self.journal = Journal(monkeypatch)
        self.app = App("app", processing_guarantee=guarantee, **conf)
        self.out = self.app.topic("out", value_serializer="raw")
        self.group = Group()
        client: Any = SimpleNamespace()
        self.stale: list[CommitRefused] = []
        self.told: list[Any] = []  # offsets that were committed
        self.commits = Commits(self.app, client, self.group, "me", system(), self.check, self.told.append)  # type: ignore[arg-type]
        stores = {"t": MemoryStore(TableSpec("t"))} if has_table else {}
        self.task = Task("app", TaskId("in", 2), stores)

    async def check(self) -> None:
        if self.stale:
            raise self.stale.pop()

    def work(self, offset: int) -> None:
        if self.task.stores:
            self.task.stores["t"].set("k", offset)
        self.task.mark_processed("in", Position(offset))

    async def send(self, value: bytes, topic: Any = None, task: Any = ...) -> None:
        sender = self.task if task is ... else task
        await self.commits.send(sender, Outgoing(topic or self.out, b"k", value))

    def send_soon(self, value: bytes) -> asyncio.Future[Any]:
        return self.commits.send_soon(self.task, Outgoing(self.out, b"k", value))

    def commit(self) -> asyncio.Task[None]:
        return self.commits.begin_commit([self.task.checkpoint()])


def offsets(offset: int, generation: int = 1) -> tuple[Any, ...]:
    return ("offsets", {TopicPartition("in", 2): offset}, f"generation {generation}")


@run_by(in_loop)
async def test_outputs_come_before_rows_and_rows_before_offsets(monkeypatch):
    world = World(monkeypatch)
    journal = world.journal
    journal.at_once = False
    world.work(5)
    await world.send(b"v")
    commit = world.commit()
    await turns()
    assert journal.steps == ["out"]  # is not acknowledged
    journal.settle()
    await turns()
    assert journal.steps == ["out", "start", "begin", CHANGELOG, CHANGELOG]
    assert journal.values(CHANGELOG)[0] == b"5" and journal.done[-1][3] == MARKER
    world.group.generation = 2
    journal.settle()
    await commit
    assert journal.done[-2:] == [offsets(5, 2), ("commit",)]  # in the generation of now
    assert world.task.stores["t"].changelog_offset == journal.end == 43
    assert not world.commits.is_busy


@run_by(in_loop)
async def test_rows_are_not_committed_to_a_changelog_that_lacks_those_before(monkeypatch):
    world = World(monkeypatch)
    world.work(5)
    await world.commit()
    world.journal.end = 0  # somebody has deleted the topic, and a broker has made it anew
    world.work(6)
    with pytest.raises(
        ChangelogError, match=f"changelog {CHANGELOG} .*partition 2 go up to offset 42.* at 0.* reset app"
    ):
        await world.commit()
    assert world.journal.steps[-4:] == ["begin", CHANGELOG, CHANGELOG, "abort"]


@pytest.mark.parametrize(("guarantee", "kind"), [(ALO, PLAIN), (EOS, TRANSACTIONAL)])
@run_by(in_loop)
async def test_outputs_are_in_the_transaction_with_exactly_once(monkeypatch, guarantee, kind):
    world = World(monkeypatch, guarantee)
    internal = world.app.topic("app-again", value_serializer="raw")
    internal.is_internal = True
    world.work(1)
    await world.send(b"1")
    await world.send(b"2", internal)
    await world.send(b"3", task=None)  # outside of agents
    sent = [each[1:3] for each in world.journal.done if each[0] == "send"]
    assert sent == [(kind, "out"), (TRANSACTIONAL, "app-again"), (PLAIN, "out")]
    await world.commit()
    assert world.journal.steps.count("begin") == world.journal.steps.count("commit") == 1


@run_by(in_loop)
async def test_outputs_alone_are_committed_with_their_offsets(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    world.work(3)
    await world.send(b"v")
    await world.commit()
    sent = ("send", TRANSACTIONAL, "out", b"k", b"v", None)
    assert world.journal.done[1:] == [("begin",), sent, offsets(3), ("commit",)]
    assert not world.commits.has_outputs


@run_by(in_loop)
async def test_a_heartbeat_goes_to_each_partition_in_the_transaction_of_what_was_sent_before(monkeypatch):
    world = World(monkeypatch)
    world.commits.client = SimpleNamespace(partitions=lambda topic: [0, 1, 2])  # type: ignore[assignment]
    topic = world.app.topic("app-by-repartition", internal=True)
    topic.place = lambda event, count: event.offset % count
    await world.commits.send_event(world.task, topic, Event(b"k", 1, 5, "in", 2, 7))
    await world.commits.send_heartbeat(world.task, topic, Heartbeat("in", 2, 4, 9))
    sent = [(each[1], each[3], each[5]) for each in world.journal.done if each[0] == "send"]
    beats = [(TRANSACTIONAL, None, partition) for partition in range(3)]
    assert sent == [(TRANSACTIONAL, b"k", 1), *beats]


def _events(*values: Any, headers: Any = ()) -> list[Event]:
    return [Event(b"k", value, 5, "in", 2, 7, headers) for value in values]


@run_by(in_loop)
async def test_events_of_an_operator_go_together_up_to_one_that_cannot(monkeypatch):
    world = World(monkeypatch)
    topic = world.app.topic("out")

    async def put(*events: Event) -> tuple[int, list[bytes | None]]:
        before = len(world.journal.values("out"))
        taken = world.commits.put_events(world.task, topic, events)
        await turns()
        return taken, world.journal.values("out")[before:]

    many = [str(each).encode() for each in range(2_500)]  # more than wait together
    assert await put(*_events(*range(2_500))) == (2_500, many) and world.task.changed
    assert await put(*_events(1, 2), *_events(3, headers=(("h", b""),)), *_events(4)) == (2, [b"1", b"2"])
    assert await put(*_events(1, object(), 3)) == (1, [b"1"])
    [plain] = [each for each in world.journal.producers if each.kind == PLAIN]
    plain.buffered_bytes = plain.buffer_bytes
    assert await put(*_events(1)) == (0, [])
    plain.buffered_bytes = 0
    for name, function in ("partitioner", lambda key, count: 0), ("place", lambda event, count: 0):
        setattr(topic, name, function)
        assert await put(*_events(1)) == (0, [])


@run_by(in_loop)
async def test_events_of_an_operator_that_the_producer_does_not_take_are_not_passed_over(monkeypatch):
    """They wait until the loop has its next turn: nobody is there then to be told."""
    world = World(monkeypatch)
    assert world.commits.put_events(world.task, world.out, _events(b"1")) == 1
    world.journal.fails["send"] = [BufferFull("no")]
    await turns()
    world.work(1)
    with pytest.raises(CommitRefused, match="an output was not taken: no"):
        await world.commit()
    assert not world.told


@run_by(in_loop)
async def test_events_of_an_operator_wait_for_a_transaction_that_is_open(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    events = _events(b"1", b"2")
    assert world.commits.put_events(world.task, world.out, events) == 0  # none is
    await world.send(b"0")
    assert world.commits.put_events(world.task, world.out, events) == 2
    world.work(3)
    world.journal.gates["commit"] = gate = asyncio.Event()
    commit = world.commit()
    await turns()
    assert world.commits.put_events(world.task, world.out, events) == 0  # it ends
    gate.set()
    await commit
    assert [value for _, value in world.journal.committed("out")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_what_has_no_rows_and_no_open_transaction_commits_plain_offsets(monkeypatch, guarantee):
    world = World(monkeypatch, guarantee, has_table=False)
    world.work(3)
    await world.commit()
    assert (world.journal.done, world.group.offsets) == ([], [{TopicPartition("in", 2): 3}])


@run_by(in_loop)
async def test_plain_offsets_wait_for_outputs(monkeypatch):
    world = World(monkeypatch, has_table=False)
    world.journal.at_once = False
    world.work(2)
    assert world.commits.put_events(world.task, world.out, _events(b"v")) == 1
    commit = world.commit()
    await turns()
    assert not world.group.offsets
    world.journal.settle()
    await commit
    world.group.offsets.clear()
    world.work(3)
    await world.send(b"v")
    commit = world.commit()
    await turns()
    assert not world.group.offsets
    world.journal.settle()
    await commit
    assert world.group.offsets == [{TopicPartition("in", 2): 3}]
    world.work(4)
    await world.send(b"v")
    world.journal.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
    with pytest.raises(StreamsError, match=r"app app: an output was not written: .*out-0: may not write"):
        await world.commit()
    assert len(world.group.offsets) == 1


@run_by(in_loop)
async def test_plain_offsets_that_are_refused_are_committed_again(monkeypatch):
    world = World(monkeypatch, has_table=False)
    world.group.error = KafkaError.of(ErrorCode.REBALANCE_IN_PROGRESS, "app")
    world.work(3)
    await world.commit()
    assert world.task.changed and not world.group.offsets
    world.group.error = None
    await world.commit()
    assert world.group.offsets == [{TopicPartition("in", 2): 3}] and not world.task.changed


def aborted(cause: Exception | None = None) -> TransactionAborted:
    error = TransactionAborted("it was aborted", retriable=cause is None)
    error.__cause__ = cause
    return error


GONE = KafkaError.of(ErrorCode.ILLEGAL_GENERATION, "app")


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("begin", aborted()),
        ("offsets", aborted(GONE)),
        ("offsets", GONE),
        ("commit", aborted()),
        ("commit", ProducerFenced("by the timeout of a transaction")),
    ],
)
@run_by(in_loop)
async def test_a_refused_commit_counts_for_nothing_and_the_next_one_is_whole(monkeypatch, guarantee, step, error):
    world = World(monkeypatch, guarantee)
    world.work(1)
    world.journal.fails[step] = [error]
    with pytest.raises(CommitRefused, match="app app: a commit was refused, and its work is done again"):
        await world.commit()
    assert ("commit",) not in world.journal.done
    assert ("abort" in world.journal.steps) == (step != "begin")
    assert world.task.stores["t"].changelog_offset == 0
    assert not world.told, "what was read may be deleted then"
    world.journal.done.clear()
    world.work(2)
    await world.commit()
    assert world.journal.steps == ["begin", CHANGELOG, CHANGELOG, "offsets", "commit"]
    assert world.told == [{TopicPartition("in", 2): 2}]


@run_by(in_loop)
async def test_a_commit_that_the_worker_forbids_writes_nothing(monkeypatch):
    world = World(monkeypatch, EOS)
    world.work(1)
    await world.send(b"1")
    world.stale.append(CommitRefused("a topic has grown"))
    with pytest.raises(CommitRefused, match="a topic has grown"):
        await world.commit()
    assert world.journal.steps == ["start", "begin", "out"] and world.commits.has_outputs
    await world.commits.roll_back()
    assert world.journal.steps[-1] == "abort"


@run_by(in_loop)
async def test_an_unknown_outcome_is_asked_for_until_it_is_known(monkeypatch):
    world = World(monkeypatch)
    world.journal.fails["commit"] = [OperationTimeout("no answer")] * 2
    world.work(1)
    await world.commit()
    assert world.journal.steps[-2:] == ["offsets", "commit"]
    assert world.task.stores["t"].changelog_offset == world.journal.end


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (
            KafkaError.of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "app-me"),
            StreamsError,
            "app app: a commit was refused for good: .*app-me",
        ),
        (
            KafkaError.of(ErrorCode.MESSAGE_TOO_LARGE, f"{CHANGELOG}-2"),
            ChangelogError,
            r"a checkpoint of app app was not written: .*; its largest row, 7 bytes, is b'\"large\"' of table t",
        ),
    ],
)
@run_by(in_loop)
async def test_what_is_refused_for_good_ends_the_worker(monkeypatch, error, raised, said):
    world = World(monkeypatch)
    world.journal.at_once = False
    world.task.stores["t"].set("large", "12345")
    world.work(1)
    monkeypatch.setattr(Marker, "encode", lambda self: b"m")  # shorter than the row
    commit = world.commit()
    await turns()
    world.journal.settle(error)
    with pytest.raises(raised, match=said) as caught:
        await commit
    assert not isinstance(caught.value, CommitRefused)
    assert "abort" in world.journal.steps and "offsets" not in world.journal.steps


def refused_by_a_partition() -> TransactionAborted:
    return aborted(KafkaError.of(ErrorCode.INVALID_PRODUCER_EPOCH, "app-t-changelog-0"))


@pytest.mark.parametrize("error", [lambda: ProducerFenced("no"), refused_by_a_partition])
@run_by(in_loop)
async def test_a_worker_that_is_fenced_again_and_again_has_a_double(monkeypatch, error):
    world = World(monkeypatch)
    world.journal.fails["commit"] = [error() for _ in range(FENCED_MAX)]
    for _ in range(FENCED_MAX - 1):
        with pytest.raises(CommitRefused):
            await world.commit()
    with pytest.raises(StreamsError, match="another worker uses the transactional id app-me: give each"):
        await world.commit()


@run_by(in_loop)
async def test_one_that_was_fenced_since_the_group_had_removed_it_has_none(monkeypatch):
    world = World(monkeypatch)
    world.journal.fails["commit"] = [ProducerFenced("no") for _ in range(FENCED_MAX)]
    for _ in range(FENCED_MAX):
        with pytest.raises(CommitRefused):
            await world.commit()
        await world.commits.removed()


@pytest.mark.parametrize("has_transactions", [True, False])
@run_by(in_loop)
async def test_what_a_worker_that_was_killed_has_open_is_ended_at_once_by_itself_or_by_another(
    monkeypatch, has_transactions
):
    world = World(monkeypatch)
    world.journal.fails["start"] = [ProducerFailed("may not")] * 2  # tells nobody but the log
    await world.commits.start(has_transactions)
    await turns()
    assert len(world.journal.fails["start"]) == 2 - has_transactions
    world.journal.fails.clear()
    await world.commits.start(has_transactions)
    world.commits.end_others(["app-gone", "app-gone-too"])
    await turns()
    assert world.journal.started == ["app-me"] * 2 * has_transactions + ["app-gone", "app-gone-too"]
    world.work(1)
    await world.commit()
    assert world.journal.started.count("app-me") == (2 if has_transactions else 1)


def test_a_transaction_lasts_for_longer_than_the_time_between_commits(monkeypatch):
    with pytest.raises(AppError, match=r"producer_transaction_timeout is 5 s, and must be longer than .*interval, 5 s"):
        World(monkeypatch, producer_transaction_timeout=5, broker_commit_interval=5)


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_an_output_that_fails_keeps_its_checkpoint_from_being_written(monkeypatch, guarantee):
    world = World(monkeypatch, guarantee)
    world.journal.at_once = False
    world.work(1)
    await world.send(b"v")
    world.journal.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
    with pytest.raises(StreamsError, match="out-0: may not write"):
        await world.commit()
    assert CHANGELOG not in world.journal.steps and "offsets" not in world.journal.steps


@run_by(in_loop)
async def test_unacknowledged_outputs_are_bounded_and_one_that_fails_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(commits_module, "OUTPUTS_MAX", 3)
    world = World(monkeypatch)
    world.journal.at_once = False
    for _ in range(3):
        await world.send(b"v")
    fourth = asyncio.ensure_future(world.send(b"v"))
    await turns()
    assert not fourth.done() and len(world.journal.open) == 3
    world.journal.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
    await asyncio.gather(fourth, return_exceptions=True)  # an agent may have caught what it raised
    world.journal.settle()
    world.journal.at_once = True
    with pytest.raises(StreamsError, match="out-0: may not write"):
        await world.commit()


@run_by(in_loop)
async def test_outputs_during_a_commit_are_in_the_next_transaction(monkeypatch):
    """Their events are not in the checkpoint."""
    world = World(monkeypatch, EOS)
    world.journal.gates["commit"] = asyncio.Event()
    world.work(1)
    await world.send(b"1")
    commit = world.commit()
    await turns()
    world.work(2)
    sending = asyncio.ensure_future(world.send(b"2"))
    await turns()
    assert world.journal.values("out") == [b"1"]
    world.journal.gates["commit"].set()
    await asyncio.gather(commit, sending)
    assert world.journal.steps[-3:] == ["commit", "begin", "out"]
    assert world.task.changed


@run_by(in_loop)
async def test_an_output_that_waited_for_its_transaction_to_begin_is_not_in_a_commit_that_began_before(monkeypatch):
    """The commit is of other tasks then; this one is in the middle of an event."""
    world = World(monkeypatch, EOS)
    world.journal.gates["start"] = asyncio.Event()
    sending = asyncio.ensure_future(world.send(b"late"))
    await turns()
    world.work(1)
    commit = world.commit()
    await turns()
    world.journal.gates["start"].set()
    await asyncio.gather(commit, sending)
    assert world.journal.steps.index("commit") < world.journal.steps.index("out")


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_what_is_sent_soon_is_in_the_next_commit(monkeypatch, guarantee):
    """Of a transaction, too, though none is open, and nobody waits for it to begin."""
    world = World(monkeypatch, guarantee, has_table=False)
    world.work(1)
    sent = world.send_soon(b"soon")
    if guarantee == EOS:
        assert world.commits.has_outputs and not world.journal.steps
    await world.commit()
    place = await sent
    assert (place.topic, world.journal.values("out")) == ("out", [b"soon"])
    if guarantee == EOS:
        assert world.journal.steps[1:] == ["begin", "out", "offsets", "commit"]
    assert not world.commits.has_outputs


@run_by(in_loop)
async def test_what_is_sent_soon_keeps_its_place_before_what_is_sent_after_it(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    world.work(1)
    world.send_soon(b"1")
    await world.send(b"2")
    world.send_soon(b"3")
    assert world.commits.put_events(world.task, world.out, _events(b"4")) == 0  # it is sent as others are
    await world.send(b"4")
    assert world.journal.values("out") == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_an_output_asks_for_a_checkpoint_of_its_task(monkeypatch, guarantee):
    """Though no event was done: its transaction must end, and not while the task is in the middle of one."""
    world = World(monkeypatch, guarantee, has_table=False)
    commits, task = world.commits, world.task
    await world.send(b"0")  # so that a transaction is open

    async def put() -> None:
        assert commits.put(task, world.out, b"k", b"1", None, 5, None, _events(b"1")[0]) is not None

    async def put_events() -> None:
        assert commits.put_events(task, world.out, _events(b"2")) == 1

    async def send() -> None:
        await world.send(b"3")

    async def send_soon() -> None:
        world.send_soon(b"4")

    for way in (put, put_events, send, send_soon):
        task.changed = False
        commits._writers.clear()
        await way()
        assert task.changed and list(commits.writers) == ([task] if guarantee == EOS else []), way
    await world.commit()
    assert world.journal.values("out") == [b"0", b"1", b"2", b"3", b"4"]


@run_by(in_loop)
async def test_what_failed_before_tasks_went_back_does_not_refuse_the_next_commit(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    world.journal.at_once = False
    await world.send(b"1")
    world.journal.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
    world.journal.fails["send"] = [BufferFull("no")]
    with pytest.raises(CommitRefused, match="an output was not taken: no"):
        await world.send(b"2")
    await world.commits.roll_back()
    assert not world.commits.writers
    world.journal.at_once = True
    world.work(1)
    await world.commit()
    assert world.told == [{TopicPartition("in", 2): 1}]


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_task_that_has_ended_sends_nothing_more(monkeypatch, guarantee):
    """An agent that cannot be cancelled runs on, and whoever has the task now does its events again."""
    world = World(monkeypatch, guarantee, has_table=False)
    await world.send(b"1")
    world.task.is_over = True
    assert world.commits.put_events(world.task, world.out, _events(b"2")) == 0
    for way in (world.send, world.send_soon):
        with pytest.raises(StreamsError, match="task in-2 has ended here"):
            await way(b"2")  # type: ignore[misc]
    await world.commits.begin_commit([])
    assert world.journal.values("out") == [b"1"]


@run_by(in_loop)
async def test_what_was_sent_soon_and_did_not_count_is_cancelled(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    world.work(1)
    sent = world.send_soon(b"1")
    await world.commits.roll_back()
    assert sent.cancelled()
    world.stale.append(CommitRefused("the layout has changed"))
    sent = world.send_soon(b"1")
    with pytest.raises(CommitRefused):
        await world.commit()
    assert sent.cancelled()


@pytest.mark.parametrize("refused", ["as it is put", "by the cluster"])
@run_by(in_loop)
async def test_a_producer_that_fails_at_what_was_sent_soon_refuses_the_commit(monkeypatch, refused):
    """And who waits for one of the records learns that it does not count."""
    world = World(monkeypatch, EOS, has_table=False)
    world.work(1)
    sent = [world.send_soon(value) for value in (b"1", b"2")]
    gone = KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "out-0: no leader")
    if refused == "as it is put":
        world.journal.fails["send"] = [gone]
        commit = world.commit()
    else:
        world.journal.at_once = False
        commit = world.commit()
        await turns()
        world.journal.settle(gone)
    with pytest.raises(CommitRefused, match="out-0: no leader"):
        await commit
    told = await asyncio.gather(*sent, return_exceptions=True)
    assert all(isinstance(each, (asyncio.CancelledError, KafkaError)) for each in told)
    assert world.journal.committed("out") == [] and world.journal.steps[-1] == "abort"
    world.journal.at_once = True
    world.work(2)
    again = world.send_soon(b"again")
    await world.commit()
    assert (await again).topic == "out"
    assert world.journal.committed("out") == [(b"k", b"again")]


@run_by(in_loop)
async def test_what_was_sent_soon_stays_in_its_place_where_the_producer_does_not_take_it(monkeypatch):
    world = World(monkeypatch, EOS, has_table=False)
    world.work(1)
    sent = world.send_soon(b"1")
    world.journal.fails["send"] = [KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "out-0: no leader")]
    with pytest.raises(CommitRefused):
        await world.send(b"2")  # which begins with the first one
    assert world.journal.values("out") == []
    with pytest.raises(CommitRefused):  # whatever the agent did with the error
        await world.commit()
    await world.commits.roll_back()
    assert sent.cancelled()


@run_by(in_loop)
async def test_what_is_sent_soon_is_bounded(monkeypatch):
    monkeypatch.setattr(commits_module, "OUTPUTS_MAX", 2)
    world = World(monkeypatch, EOS, has_table=False)
    for _ in range(2):
        world.send_soon(b"1")
    with pytest.raises(CommitRefused, match=r"2 records of send_soon\(\) wait for their transaction"):
        world.send_soon(b"1")


@run_by(in_loop)
async def test_a_producer_that_cannot_abort_is_replaced(monkeypatch):
    world = World(monkeypatch, EOS)
    await world.send(b"1")
    assert world.commits.has_outputs
    world.journal.fails["abort"] = [ProducerFenced("by its timeout")]
    await world.commits.roll_back()
    assert not world.commits.has_outputs
    await world.send(b"2")
    assert [each.kind for each in world.journal.producers] == [PLAIN, TRANSACTIONAL, TRANSACTIONAL]


@run_by(in_loop)
async def test_a_cluster_without_transactions_says_what_is_missing(monkeypatch):
    world = World(monkeypatch, EOS)
    world.journal.fails["start"] = [ProducerFailed("INVALID_REPLICATION_FACTOR")]
    with pytest.raises(StreamsError, match=r"app app cannot have transactions, .* and exactly_once need: INVALID"):
        await world.send(b"1")


@run_by(in_loop)
async def test_an_output_outside_of_agents_that_fails_is_logged(monkeypatch, caplog):
    world = World(monkeypatch)
    world.journal.at_once = False
    await world.send(b"v", task=None)
    world.journal.settle(KafkaError.of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "out-0: may not write"))
    await turns()
    assert "a record that was sent outside of agents was not written: " in caplog.text
    world.journal.at_once = True
    world.work(1)
    await world.commit()


# --- Global tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_refused", [False, True])
@run_by(in_loop)
async def test_rows_of_global_tables_are_in_the_transaction_also_of_a_task_without_tables(monkeypatch, is_refused):
    world = World(monkeypatch, has_table=False)
    spec = TableSpec("g", is_global=True)
    store = GlobalStore(spec, [MemoryStore(spec)], lambda key: 1)
    world.commits.global_stores = {"g": store}
    world.journal.fails["commit"] = [TransactionAborted("by its timeout")] * is_refused
    world.work(1)
    assert not world.commits.has_outputs
    store.set("k", 1)
    assert world.commits.has_outputs, "no commit begins in the middle of an event"
    commit = world.commit()
    await turns(1)
    store.set("k", 2)  # for the next one
    if is_refused:
        with pytest.raises(CommitRefused):
            await commit
        assert (dict(store.rows), world.journal.committed("app-g-changelog")) == ({}, [])
    else:
        await commit
        assert world.journal.steps == ["start", "begin", "app-g-changelog", "app-g-changelog", "offsets", "commit"]
        assert [each[5] for each in world.journal.done if each[0] == "send"] == [1, 1]
        world.work(2)
        await world.commit()
        written = world.journal.committed("app-g-changelog")
        assert [key for key, _ in written] == [b'"k"', MARKER] * 2, "a transaction ends with a marker"
        assert [value for key, value in written if key != MARKER] == [b"1", b"2"]
        assert dict(store.rows) == {"k": 2} and not world.commits.has_outputs
        store.follow(1, [(b'"k"', b"3")], 100)
        assert dict(store.rows) == {"k": 3}
