"""A part of a task that runs: topics whose records are processed one batch at a time, with their operators and agents.

Each batch of a topic goes through the operators that read it, and is given to the agents that read it. What operators
give goes to topics, and to the agents behind them. A batch that operators have had is done as a whole: they have
changed their tables. Agents alone may end a batch earlier, when its time is over.

Topics are in one lane where an agent or operators read several of them. An agent that stays in the middle of an event
holds up its own lane alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ..api.agents import Agent
from ..api.topics import Topic
from ..engine.checkpoint import Position
from ..engine.datacenters import Rule, Seen
from ..engine.event import Event
from ..engine.failures import FAIL, STOP, OnError, decided
from ..engine.graph import Chain, Given
from ..engine.heartbeats import Heartbeat
from ..engine.operators.operator import place_of
from ..engine.origin import Origins
from ..engine.task import Task
from ..errors import RecordError
from .agents import BATCH_EVENTS_MAX, NEVER, AgentRun, Readers
from .backlog import Backlog, Raw
from .closing import close_windows

BATCH_S = 0.1  # a step ends at the first event after this time, so that the worker can commit
TOGETHER_EVENTS = 16  # where several agents read a topic: each gets so many before the first gets more


class LeftOut(NamedTuple):
    """A record that is left out, by a policy (`engine/failures.py`). by: the agent or the operator, or None if it
    cannot be decoded."""

    topic: str
    raw: Raw
    problem: RecordError
    policy: str
    by: str | None


class Sender(Protocol):
    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        """Write what an operator gives to a topic."""
        ...

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        """The same for the first of several, as columns, where that needs no waiting and raises nothing; how many."""
        ...

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        """Write it to each partition of a topic, behind what the task has sent there."""
        ...


class Writer(NamedTuple):
    """A task as those who read what it writes know it, see `Heartbeat`."""

    subtopology: str
    partition: int
    tasks: int


class Chained(NamedTuple):
    """Operators of a task that hang together. sinks: by node, the topics that they write to; agents: nodes of those
    behind them; is_joining: they need records of several topics in the order of time; on_error: of what they raise;
    rule: of datacenters, for their watermarks; writer: whose heartbeats they give; idle_after_ms: by topic, with
    nothing to read for so long it is not waited for."""

    chain: Chain
    topics: frozenset[str]
    sinks: Mapping[str, Topic]
    agents: tuple[str, ...]
    is_joining: bool
    on_error: OnError
    rule: Rule | None = None
    writer: Writer = Writer("", 0, 1)
    idle_after_ms: Mapping[str, int] = {}


class Parts(NamedTuple):
    """What a task or a lane is made of. readers: agents, and the topics that each reads; behind: agents that read
    operators, by node. in_order: of several topics, the record with the least time is next."""

    readers: Sequence[tuple[Agent, frozenset[str]]]
    behind: Mapping[str, Agent] = {}
    chained: Sequence[Chained] = ()
    in_order: bool = False

    def read(self) -> Generator[None, None, None]:
        """Have operators look at what was restored, in steps of some rows. The second time there is nothing to do."""
        for chained in self.chained:
            yield from chained.chain.read()


class Lane:
    """leave_out: told of records that are left out. has_more: whether more of a topic is known to come than what was
    fetched. in_order: of several topics, the record with the least time is next. topics: all that it reads. closing:
    held by the lane of the task that closes windows.

    careful_at: a record, by topic and offset, that has failed before: what is before it is committed first, so that
    trying it again is not for ever a repetition of that, too."""

    def __init__(
        self,
        task: Task,
        topics: frozenset[str],
        parts: Parts,
        leave_out: Callable[[Task, LeftOut], Awaitable[None]],
        sender: Sender,
        has_more: Callable[[str, int], bool],
        careful_at: tuple[str, int] | None,
        origins: Origins,
        closing: asyncio.Lock,
    ) -> None:
        self.task = task
        self.topics = topics
        self.chained = parts.chained
        self.readers = [(Readers(agent, task, self._agent_failed), topics) for agent, topics in parts.readers]
        self.behind = {node: Readers(agent, task, self._agent_failed) for node, agent in parts.behind.items()}
        self.between_events = True  # stays false where a step has failed or was cancelled
        self.tick_at = 0.0  # loop time from which it is to be told the time
        self.most = 1  # events of a step: follows the agents' speed, since an agent may take a whole batch at once
        self._backlogs: dict[str, deque[Backlog]] = {}  # by topic, in the order of their turns
        self._feeding: Mapping[str, Sequence[str]] = task.feeding if parts.chained else {}  # what `fill` is to do
        self._in_order = parts.in_order
        self._leave_out = leave_out
        self._sender = sender
        self._has_more = has_more
        self._careful_at = careful_at
        self._origins = origins
        self._closing = closing
        self._passed: dict[str, Position] = {}  # by topic: behind what agents were given
        self._present: Backlog | None = None
        self._left_out: list[tuple[str, Event, Exception, str]] = []  # by operators, in the present batch
        self._nothing_since: dict[str, int] = {}  # topic -> wall clock, in ms
        self._beats: dict[str, Heartbeat] = {}  # by node: the last one that was sent
        for chained in self.chained:
            chained.chain.on_failure(partial(self._operator_failed, chained.on_error))

    # --- What is to be processed ----------------------------------------------------------------------

    def add(self, backlog: Backlog) -> None:
        """More of a partition, behind what there is of it."""
        self._backlogs.setdefault(backlog.tp.topic, deque()).append(backlog)

    @property
    def is_ready(self) -> bool:
        """Whether there is something to process now."""
        return self._next_topic() is not None

    def _next_topic(self) -> str | None:
        """The topic whose turn it is. None: there is nothing, or what is next is not known yet."""
        topics = [each for each in dict.fromkeys((*self.task.positions, *self._backlogs)) if each in self.topics]
        if not self._in_order or len(topics) < 2:
            return next(iter(self._backlogs), None)
        times: dict[str, int] = {}
        for topic in topics:
            queue = self._backlogs.get(topic)
            if queue is not None:
                times[topic] = queue[0].next_timestamp_ms
            elif self._has_more(topic, self.task.partition):
                return None  # it may be earlier than what is there
        return min(times, key=lambda topic: times[topic]) if times else None

    def _until_ms(self, topic: str) -> int | None:
        """Up to which time, inclusive, records of this topic are before all others that are there."""
        if not self._in_order:
            return None
        return min((q[0].next_timestamp_ms for name, q in self._backlogs.items() if name != topic), default=None)

    # --- Processing -----------------------------------------------------------------------------------

    async def fill(self) -> None:
        """Give steps that are new the rows of tables that are there. Nothing is processed before."""
        feeding = self._feeding
        if not feeding:
            return
        self.between_events = False
        for chained in self.chained:
            for given in chained.chain.fill(feeding):
                await self._pass_on(chained, given)
                await asyncio.sleep(0)  # a table may have very many rows
        self._feeding = {}
        self.between_events = True

    async def process(self, most: int, until: float = NEVER, wall_ms: int = 0) -> int:
        """Process the next events of the topic whose turn it is, and move the task's position behind them. Returns the
        number of records: at most `most`, fewer where `until` (loop time) is over before; none where a commit must come
        first, or where what is next is not known any more."""
        await self.fill()
        topic = self._next_topic()
        if topic is None:
            return 0
        queue = self._backlogs.pop(topic)
        self._backlogs[topic] = queue  # the others come first next time
        backlog = queue[0]
        try:
            events = self._carefully(topic, backlog.ahead(most))
        except RecordError:
            if not self.task.changed:
                raise
            events = None  # what is before it is committed first
        if events is None:
            return 0
        if (limit_ms := self._until_ms(topic)) is not None:
            events = _up_to(events, limit_ms)
        self.between_events = False
        self._present = backlog
        refused, backlog.refused = backlog.refused, []
        for raw, problem, policy in refused:
            await self._leave_out(self.task, LeftOut(topic, raw, problem, policy, None))
        done = await self._give(topic, events, until, wall_ms) if events else 0
        async with self._closing:
            await close_windows(self.task)
        count = backlog.count(done)
        self._passed[topic] = backlog.passed(done)
        self.settle()
        self.between_events = True
        if backlog.empty:
            queue.popleft()
            if not queue:
                del self._backlogs[topic]
        return count

    def took(self, done: int, seconds: float) -> None:
        """How long a step with this many events took: the next one has as many as take about BATCH_S."""
        if seconds > BATCH_S:
            self.most = max(1, int(self.most * BATCH_S / seconds))
        elif seconds < BATCH_S / 2 and done >= self.most:
            self.most = min(2 * self.most, BATCH_EVENTS_MAX)

    async def tick(self, wall_ms: int) -> None:
        """The wall clock has moved on."""
        if not self.between_events:
            return
        await self.fill()
        self.between_events = False
        for chained in self.chained:
            rule = chained.rule
            if rule is not None and rule.look(wall_ms, self._seen(rule)):
                self.task.changed = True  # what is excluded is so after a restart, too
            await self._pass_on(chained, chained.chain.tick(wall_ms, self._idle(chained, wall_ms)))
        self.between_events = True

    async def complete(self, topic: str, until_ms: int) -> None:
        """A topic is known to have no more events before this time."""
        await self.fill()
        self.between_events = False
        for chained in self.chained:
            if topic in chained.topics:
                if topic in _waited(chained):
                    chained.chain.clocks.include(topic)  # it may be idle, and counts again
                await self._pass_on(chained, chained.chain.complete(topic, until_ms))
        self.between_events = True

    def _seen(self, rule: Rule) -> dict[str, Seen]:
        """What is known now of the topics that mirrors bring."""
        partition, at = self.task.partition, self.task.positions
        beats = self._origins.beats
        return {topic: Seen(beats.get((topic, partition)), at.get(topic, Position(0)).offset) for topic in rule.topics}

    def _idle(self, chained: Chained, wall_ms: int) -> list[str]:
        """Topics that have had nothing to read for long enough."""
        since, found = self._nothing_since, []
        for topic in sorted(_waited(chained)):
            if topic in self._backlogs or self._has_more(topic, self.task.partition):
                since.pop(topic, None)
            elif wall_ms - since.setdefault(topic, wall_ms) >= chained.idle_after_ms[topic]:
                found.append(topic)
        return found

    async def send_heartbeats(self) -> None:
        """Tell the tasks that read what this one writes how far it is, where that has changed. Between two batches: so
        what it is about has been sent."""
        if not self.between_events:
            return
        for chained in self.chained:
            for node, topic in chained.sinks.items():
                if not topic.has_heartbeats:
                    continue
                beat = Heartbeat(*chained.writer, *chained.chain.told(node))
                if beat != self._beats.get(node):
                    await self._sender.send_heartbeat(self.task, topic, beat)
                    self._beats[node] = beat

    def _taking_along(self, chained: Chained, node: str, event: Event) -> Event:
        """A late event that tells how far its task was then, unless those who read it know that."""
        last = self._beats.get(node)
        if last is not None and last.watermark_ms >= event.watermark_ms:
            return event
        _, _, lacking = chained.chain.told(node)
        telling = event.derived(event.key, event.value)
        telling.raw_headers += (Heartbeat(*chained.writer, event.watermark_ms, False, lacking).along,)
        return telling

    def _carefully(self, topic: str, events: list[Event]) -> list[Event] | None:
        """The events before one that has failed; None at that one, while there is something to commit."""
        if self._careful_at is None or self._careful_at[0] != topic or not events:
            return events
        offset = self._careful_at[1]
        if events[0].offset < offset:
            return [event for event in events if event.offset < offset]
        if events[0].offset == offset:
            return None if self.task.changed else events[:1]
        self._careful_at = None
        return events

    async def _give(self, topic: str, events: list[Event], until: float, wall_ms: int) -> int:
        readers = [each for each, topics in self.readers if topic in topics]
        chained = [each for each in self.chained if topic in each.topics]
        if chained:
            for chain in chained:
                await self._pass_on(chain, chain.chain.process(topic, events, wall_ms))
            for each in readers:
                if its := [event for event in events if type(event.value) is not Heartbeat]:
                    await each.offer(its, NEVER)
            return len(events)
        if len(readers) == 1:
            return await readers[0].offer(events, until)
        loop = asyncio.get_running_loop()
        done, together = 0, 1  # begin with one: the agents may be slow
        while done < len(events) and not (done and loop.time() >= until):
            some = events[done : done + together]
            first = await readers[0].offer(some, until)
            for each in readers[1:]:
                await each.offer(some[:first], NEVER)
            done += first
            together = min(2 * together, TOGETHER_EVENTS)
        return done

    async def _pass_on(self, chained: Chained, given: Given) -> None:
        """What operators gave: to topics, and to agents."""
        for node, events in given.items():
            topic = chained.sinks.get(node)
            if topic is not None:
                taken = 0 if topic.has_heartbeats else self._sender.put_events(self.task, topic, events)
                for event in events[taken:]:
                    if event.timestamp_ms < event.watermark_ms and topic.has_heartbeats:
                        event = self._taking_along(chained, node, event)
                    try:
                        await self._sender.send_event(self.task, topic, event)
                    except (TypeError, ValueError) as error:  # it cannot be encoded
                        self._operator_failed(chained.on_error, node, event, error)
            elif events:
                await self.behind[node].offer(events, NEVER)
        left_out, self._left_out = self._left_out, []
        for name, event, cause, policy in left_out:
            problem = _of_operator(name, event, cause)
            await self._leave_out(self.task, LeftOut(event.topic, self._raw(event), problem, policy, name))
        self.task.changed = self.task.changed or bool(given)

    # --- Failures -------------------------------------------------------------------------------------

    def _operator_failed(self, on_error: OnError, name: str, event: Event, error: Exception) -> None:
        policy = decided(on_error, event.topic, event.partition, event.offset, error)
        if policy in (FAIL, STOP):
            problem = _of_operator(name, event, error)
            problem.must_stop = policy == STOP
            raise problem
        self._left_out.append((name, event, error, policy))

    async def _agent_failed(self, run: AgentRun, problem: RecordError) -> bool:
        event = run.work.current
        assert event is not None and problem.__cause__ is not None
        problem.at = (event.topic, event.partition, event.offset)
        failed, on_error, cause = run.taken.failed_with(event), run.agent.on_error, problem.__cause__
        policies = [decided(on_error, each.topic, each.partition, each.offset, cause) for each in failed]
        if FAIL in policies or STOP in policies:
            problem.must_stop = STOP in policies
            return False
        for each, policy in zip(failed, policies, strict=True):
            await self._leave_out(self.task, LeftOut(each.topic, self._raw(each), problem, policy, run.agent.name))
        return True

    def _raw(self, event: Event) -> Raw:
        """The record of an event as it was fetched, maybe a while ago."""
        backlog = event.carrier if isinstance(event.carrier, Backlog) else self._present
        found = backlog.raw(event.offset) if backlog is not None and event.offset >= 0 else None
        return found or Raw(event.offset, -1, None, None)

    # --- Positions ------------------------------------------------------------------------------------

    @property
    def all_readers(self) -> list[Readers]:
        return [*self.behind.values(), *(each for each, _ in self.readers)]

    @property
    def is_whole(self) -> bool:
        """Whether tables and positions include the same events, as far as this lane has changed them."""
        if self._feeding:
            return False  # a marker would say that it is done
        return self.between_events and all(each.is_idle for each in self.all_readers) and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether an agent has taken events and not done them, which another agent or an operator may have done."""
        if any(each.held_from is not None for each in self.behind.values()):
            return True
        return any(
            each.held_from is not None
            and (
                any(not topics.isdisjoint(others) for other, others in self.readers if other is not each)
                or any(not topics.isdisjoint(chained.topics) for chained in self.chained)
            )
            for each, topics in self.readers
        )

    @property
    def asked(self) -> frozenset[str]:
        """Topics where requests are to which its agents wait for the replies."""
        return frozenset(topic for each in self.all_readers for topic in each.asked)

    @property
    def backlogs(self) -> Iterable[str]:
        """Topics of which there is something to process."""
        return self._backlogs.keys()

    def settle(self) -> None:
        """Set the task's positions: behind what agents were given, but not behind an event that one of them has taken
        and not done."""
        for topic, position in self._passed.items():
            held = [each.held_from for each, topics in self.readers if topic in topics]
            first = min((offset for offset in held if offset is not None), default=position.offset)
            at = position if first >= position.offset else Position(first)
            if self.task.positions.get(topic) != at:
                self.task.mark_processed(topic, at)

    def check(self) -> None:
        """Raise the error that ended an agent, if any."""
        for each in self.all_readers:
            each.check()

    def before_checkpoint(self) -> None:
        """Called when the task is whole, and a checkpoint is about to be taken."""
        self.settle()
        for chained in self.chained:
            chained.chain.save()

    async def stop(self) -> bool:
        """Whether all agents have ended."""
        return all([await each.stop() for each in self.all_readers])


def _waited(chained: Chained) -> frozenset[str]:
    """Topics of which it is not said elsewhere that they have nothing to read, and that somebody may wait for: others
    here, or tasks behind."""
    if len(chained.topics) < 2 and not any(topic.has_heartbeats for topic in chained.sinks.values()):
        return frozenset()
    told = frozenset().union(*(each.topics_told for each in chained.chain.clocks.each))
    return chained.topics.difference(told, () if chained.rule is None else chained.rule.topics)


def _up_to(events: list[Event], limit_ms: int) -> list[Event]:
    """The events before the first one that is later than this; one at least."""
    for number, event in enumerate(events):
        if event.timestamp_ms > limit_ms and number:
            return events[:number]
    return events


def _of_operator(name: str, event: Event, error: Exception) -> RecordError:
    said = f": {error}" if isinstance(error, RecordError) else f" raised {type(error).__name__}: {error}"
    problem = RecordError(f"step {name}{said} {place_of(event)}")
    problem.__cause__ = error
    if event.offset >= 0:
        problem.at = (event.topic, event.partition, event.offset)
    return problem
