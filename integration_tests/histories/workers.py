"""The clients of a history: producers, consumers that read and seek, members of a group, and one who asks for its
committed offsets. Each notes what it does in the history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from integration_tests.histories import clusters, libraries
from integration_tests.histories.history import (
    FAIL,
    INFO,
    OK,
    READ_UNCOMMITTED,
    Commit,
    Committed,
    FinalRead,
    History,
    Poll,
    Send,
)
from integration_tests.histories.libraries import NotSent, Reader, Records

PARTITIONS = 3
SEND_EVERY_S = 0.02  # of each producer
UNANSWERED_MAX = 2000
SEEK_EVERY_S = 4.0
COMMIT_EVERY_S = 0.4
ASK_EVERY_S = 0.7
LEAVE_EVERY_S = 5.0
ANSWER_S = 10.0  # for the coordinator's; aiokafka asks for ever
PAUSE_S = 0.1  # after an error
SETTLE_S = 60.0  # for all that has to end after the last fault
START_S = 60.0


@dataclass
class Run:
    """What the workers of one topic of a history share. sending, reading: until when they go on. ends: set once they
    are known. first: the number that the topic's partition 0 has in the history."""

    bootstrap: str
    topic: str
    seed: int
    history: History
    now_s: Callable[[], float]
    sending: asyncio.Event = field(default_factory=asyncio.Event)  # set: no more
    reading: asyncio.Event = field(default_factory=asyncio.Event)  # set: to the ends, and no further
    ends: dict[int, int] = field(default_factory=dict)
    first: int = 0
    isolation: str = READ_UNCOMMITTED
    reader: Callable[..., Reader] = libraries.reader

    @property
    def group(self) -> str:
        return f"group-{self.topic}"

    def chance(self, worker: str) -> random.Random:
        return random.Random(f"{self.seed} {worker}")


# --- Producers --------------------------------------------------------------------------------------------------------


class Producing:
    """Producers of a library, one after the other: the next after an error, and then their order is not one."""

    def __init__(self, run: Run, library: str) -> None:
        self._run = run
        self._library = library
        self._unanswered: dict[asyncio.Future[int], Send] = {}
        self._failed = False

    async def run(self) -> None:
        count = 0
        while not self._run.sending.is_set():
            count += 1
            await self._one(f"{self._library}-p{count}")

    async def _one(self, name: str) -> None:
        run = self._run
        writer = libraries.writer(self._library, run.bootstrap, run.topic, name)
        self._failed = False
        try:
            await asyncio.wait_for(writer.start(), START_S)
        except Exception as error:
            run.history.note(name, error)
            await sleep(PAUSE_S, run.sending)
            return
        number = 0
        while not run.sending.is_set() and not self._failed:
            if len(self._unanswered) < UNANSWERED_MAX:
                send = Send(name, number % PARTITIONS, number, run.now_s())
                number += 1
                run.history.sends.append(send)
                try:
                    future = await writer.send(send.partition, send.value)
                except NotSent as error:
                    send.completed_s, send.outcome, send.error = run.now_s(), FAIL, str(error)
                except Exception as error:
                    self._gave_up(send, error)
                else:
                    self._unanswered[future] = send
                    future.add_done_callback(self._answered)
            await sleep(SEND_EVERY_S, run.sending)
        if self._unanswered and not self._failed:
            await asyncio.wait(list(self._unanswered), timeout=SETTLE_S)
            if self._unanswered:
                run.history.unfinished.append(f"{name} has no answer to {len(self._unanswered)} sends")
        await close(run, writer, name)
        for future in list(self._unanswered):
            future.cancel()

    def _answered(self, future: asyncio.Future[int]) -> None:
        send = self._unanswered.pop(future)
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._gave_up(send, error)
        else:
            send.completed_s, send.outcome, send.offset = self._run.now_s(), OK, future.result()

    def _gave_up(self, send: Send, error: BaseException) -> None:
        """The library tells an error: an attempt of it may have been written nevertheless."""
        send.completed_s, send.outcome, send.error = self._run.now_s(), INFO, f"{type(error).__name__}: {error}"
        self._run.history.note(send.worker, error)
        self._failed = True


# --- Consumers --------------------------------------------------------------------------------------------------------


class Reading:
    """Polls a reader, notes what it gives, and knows its positions of the present span."""

    def __init__(self, run: Run, reader: Reader, name: str, group: str = "") -> None:
        self._run = run
        self.reader = reader
        self.name = name
        self._group = group
        self.positions: dict[int, int] = {}
        self._span = -1

    async def poll(self) -> Records:
        begun_s = self._run.now_s()
        try:
            came = await self.reader.poll()
        except Exception as error:
            self._run.history.note(self.name, error)
            await asyncio.sleep(PAUSE_S)
            came = {}
        self.look()
        for partition, records in came.items():
            place = self._run.first + partition
            poll = Poll(self.name, self._span, place, begun_s, self._run.now_s(), records, self._group)
            self._run.history.polls.append(poll)
            self.positions[partition] = records[-1][0] + 1
        return came

    def look(self) -> None:
        """Forget the positions of an assignment that is no more."""
        if self._span != self.reader.span:
            self._span = self.reader.span
            self.positions.clear()

    @property
    def has_all(self) -> bool:
        ends = self._run.ends
        return bool(ends) and all(self.positions.get(each, 0) >= end for each, end in ends.items())


async def read(run: Run, library: str, role: str = "r") -> None:
    """Read all partitions by assignment, from leaders or in a rack, and go back to earlier offsets now and then."""
    name = f"{library}-{role}"
    chance = run.chance(name)
    rack = chance.choice(["", *map(clusters.rack, clusters.NODES)])
    reader = run.reader(library, run.bootstrap, run.topic, name, rack=rack, isolation=run.isolation)
    await asyncio.wait_for(reader.start(), START_S)
    reading = Reading(run, reader, name)
    await reader.assign(dict.fromkeys(range(PARTITIONS), 0))
    seek_at_s = run.now_s() + chance.uniform(0, 2 * SEEK_EVERY_S)
    while not run.reading.is_set():
        await reading.poll()
        if run.now_s() >= seek_at_s and reading.positions:
            back = {each: chance.randint(0, reading.positions.get(each, 0)) for each in range(PARTITIONS)}
            await reader.assign(back)
            reading.look()
            reading.positions.update(back)
            seek_at_s = run.now_s() + chance.uniform(0, 2 * SEEK_EVERY_S)
    await _to_the_ends(run, reading)
    await close(run, reader, name)


async def _to_the_ends(run: Run, reading: Reading) -> None:
    deadline_s = run.now_s() + SETTLE_S
    while not reading.has_all:
        await reading.poll()
        if run.now_s() > deadline_s:
            run.history.unfinished.append(f"{reading.name} is at {reading.positions}, the ends are at {run.ends}")
            return


async def final_read(run: Run, library: str) -> None:
    """All of all partitions, from offset 0 to the ends."""
    name = f"{library}-{run.topic}-{run.isolation}"
    reader = run.reader(library, run.bootstrap, run.topic, name, isolation=run.isolation)
    await asyncio.wait_for(reader.start(), START_S)
    silent = replace(run, history=History(), first=0)
    reading = Reading(silent, reader, name)
    await reader.assign(dict.fromkeys(range(PARTITIONS), 0))
    await _to_the_ends(silent, reading)
    run.history.unfinished += silent.history.unfinished
    for partition, end in run.ends.items():
        found = [each for poll in silent.history.polls if poll.partition == partition for each in poll.records]
        run.history.finals.append(FinalRead(run.first + partition, end, found, run.isolation))
    await close(run, reader, name)


# --- A group ----------------------------------------------------------------------------------------------------------


async def belong(run: Run, library: str, number: int) -> None:
    """Be a member that commits what it was given. Those after the first leave and come again."""
    count = 0
    chance = run.chance(f"{library}-g{number}")
    while not run.reading.is_set():
        count += 1
        stays_s = chance.uniform(LEAVE_EVERY_S / 2, LEAVE_EVERY_S * 2) if number else SETTLE_S * 1000
        await _member(run, library, f"{library}-g{number}.{count}", stays_s)


async def _member(run: Run, library: str, name: str, stays_s: float) -> None:
    reader = run.reader(library, run.bootstrap, run.topic, name, run.group)
    try:
        await asyncio.wait_for(reader.start(), START_S)
        await reader.subscribe()
    except Exception as error:
        run.history.note(name, error)
        await sleep(PAUSE_S, run.reading)
        return
    reading = Reading(run, reader, name, run.group)
    leave_at_s = run.now_s() + stays_s
    commit_at_s = run.now_s()
    while not run.reading.is_set() and run.now_s() < leave_at_s:
        await reading.poll()
        if run.now_s() >= commit_at_s and reading.positions:
            await _commit(run, reading)
            commit_at_s = run.now_s() + COMMIT_EVERY_S
    await close(run, reader, name)


async def _commit(run: Run, reading: Reading) -> None:
    positions = dict(reading.positions)
    commits = [Commit(reading.name, run.group, each, at, run.now_s()) for each, at in positions.items()]
    run.history.commits += commits
    try:
        await asyncio.wait_for(reading.reader.commit(positions), ANSWER_S)
    except Exception as error:
        for each in commits:
            each.completed_s, each.error = run.now_s(), f"{type(error).__name__}: {error}"
        run.history.note(f"{reading.name} commit", error)
    else:
        for each in commits:
            each.completed_s, each.outcome = run.now_s(), OK


async def watch(run: Run, library: str) -> None:
    """Ask for the group's committed offsets, and once more at the end."""
    name = f"{library}-w"
    reader = run.reader(library, run.bootstrap, run.topic, name, run.group)
    await asyncio.wait_for(reader.start(), START_S)
    while not run.reading.is_set():
        await _ask(run, reader, name)
        await sleep(ASK_EVERY_S, run.reading)
    deadline_s = run.now_s() + SETTLE_S
    while not await _ask(run, reader, name):
        if run.now_s() > deadline_s:
            run.history.unfinished.append(f"{name} is not told the group's offsets")
            break
        await asyncio.sleep(PAUSE_S)
    await close(run, reader, name)


async def _ask(run: Run, reader: Reader, name: str) -> bool:
    begun_s = run.now_s()
    try:
        told = await asyncio.wait_for(reader.committed(range(PARTITIONS)), ANSWER_S)
    except Exception as error:
        run.history.note(name, error)
        return False
    for partition, offset in told.items():
        run.history.committed.append(Committed(name, run.group, partition, offset, begun_s, run.now_s()))
    return True


class Closed(Protocol):
    async def close(self) -> None: ...


async def close(run: Run, client: Closed, name: str) -> None:
    """Within START_S. In a task of its own: aiokafka may end as cancelled, when it has cancelled a part of itself."""
    closing = asyncio.ensure_future(client.close())
    await asyncio.wait([closing], timeout=START_S)
    if not closing.done():
        closing.cancel()
        run.history.note(f"{name} close", f"not done after {START_S:g} s")
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        run.history.note(f"{name} close", error)


async def sleep(seconds: float, ends: asyncio.Event) -> None:
    """Until then, or the event."""
    try:
        await asyncio.wait_for(ends.wait(), seconds)
    except TimeoutError:
        pass
