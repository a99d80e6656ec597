"""The transactional producers of a history: those that write records, and members of a group that copy them into
another topic. Each notes what it does in the history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from integration_tests.histories.history import FAIL, INFO, OK, Start, Transaction, Write
from integration_tests.histories.libraries import Copier
from integration_tests.histories.transactional import ANSWER_S, Doomed, Later, Over, TransactionalWriter
from integration_tests.histories.transactional_libraries import Libraries
from integration_tests.histories.workers import (
    PARTITIONS,
    PAUSE_S,
    SETTLE_S,
    START_S,
    Reading,
    Run,
    close,
    sleep,
)

WRITES_MAX = 6  # of a transaction
EVERY_S = 0.1  # from transaction to transaction, and at most between its writes
REPEATS_S = 3 * ANSWER_S  # in which a commit is asked for again
STAYS_S = (8.0, 30.0)  # a member of the group
ABORTS = 0.15
WAKES_S = 0.5  # within which a zombie goes on
FATES = {"commit": 65, "abort": 15, "zombie": 12, "leave": 8}  # leave: never ended, by a producer that is gone


class Producer:
    """One transactional producer, and what it notes."""

    def __init__(self, run: Run, writer: TransactionalWriter, name: str, transactional_id: str) -> None:
        self._run = run
        self._writer = writer
        self._numbers = 0
        self.name = name
        self.transactional_id = transactional_id
        self.is_over = False

    async def start(self) -> bool:
        start = Start(self.name, self.transactional_id, self._run.now_s())
        self._run.history.starts.append(start)
        try:
            await asyncio.wait_for(self._repeat(self._writer.start), START_S)
        except Exception as error:
            start.error = str(error)
            self._run.history.note(f"{self.name} start", error)
            self.is_over = True
            return False
        start.completed_s, start.outcome = self._run.now_s(), OK
        return True

    async def begin(self) -> Transaction | None:
        """None: the producer is over."""
        try:
            await self._repeat(self._writer.begin)
        except Exception as error:
            self._failed(error)
            return None
        transaction = Transaction(self.name, self.transactional_id, self._run.now_s())
        self._run.history.transactions.append(transaction)
        return transaction

    async def write(
        self, transaction: Transaction, run: Run, partition: int, source: tuple[int, int] | None = None
    ) -> None:
        """To a partition of the topic of `run`. Raises what the library does."""
        write = Write(run.first + partition, self._numbers, self._run.now_s(), source=source)
        self._numbers += 1
        transaction.writes.append(write)
        future = await self._writer.send(run.topic, partition, transaction.value(write))

        def told(answer: asyncio.Future[int]) -> None:
            if not answer.cancelled() and answer.exception() is None:
                write.offset = answer.result()

        future.add_done_callback(told)

    async def offsets(self, transaction: Transaction, run: Run, positions: Mapping[int, int], member: object) -> None:
        transaction.group, transaction.offsets = run.group, dict(positions)
        await self._repeat(lambda: self._writer.offsets(run.topic, positions, member))

    async def commit(self, transaction: Transaction) -> None:
        transaction.asked_s, transaction.outcome = self._run.now_s(), INFO
        try:
            await self._repeat(self._writer.commit)
            transaction.outcome = OK
        except Exception as error:
            await self.give_up(transaction, error)
        transaction.completed_s = self._run.now_s()

    async def give_up(self, transaction: Transaction, error: Exception | None = None) -> None:
        """Abort, after an error or for no reason. Once its commit was asked for, it has failed if the library has said
        so and the abort is done; else nobody knows."""
        if error is not None:
            self._noted(transaction, error)
        if not self.is_over:
            try:
                await self._repeat(self._writer.abort)
                transaction.outcome = FAIL
            except Exception as another:
                self._noted(transaction, another)
                self.is_over = True
        transaction.completed_s = self._run.now_s()

    def _noted(self, transaction: Transaction, error: Exception) -> None:
        transaction.error = transaction.error or f"{type(error).__name__}: {error}"
        transaction.fenced |= isinstance(error, Over) and error.fenced
        self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._run.history.note(self.name, error)
        self.is_over |= not isinstance(error, Doomed)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Raises Later after REPEATS_S."""
        deadline_s = self._run.now_s() + REPEATS_S
        while True:
            try:
                return await step()
            except Later:
                if self._run.now_s() > deadline_s:
                    raise
                await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        await close(self._run, self._writer, self.name)


# --- Records ----------------------------------------------------------------------------------------------------------


class Writing:
    """Producers of a library, one after the other, and two at once when one is to become a zombie."""

    def __init__(self, run: Run, made: Libraries, library: str) -> None:
        self._run = run
        self._made = made
        self._library = library
        self._chance = run.chance(f"{library}-t")
        self._count = 0
        self._ids = 0
        self._zombies: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        producer = await self._next()
        while not self._run.sending.is_set():
            if producer.is_over:
                await producer.close()
                producer = await self._next()
            else:
                producer = await self._transaction(producer)
                await sleep(EVERY_S, self._run.sending)
        await asyncio.gather(*self._zombies)
        await producer.close()

    async def _next(self) -> Producer:
        self._count += 1
        name = f"{self._library}-t{self._count}"
        transactional_id = f"{self._run.topic}-{self._library}-{self._ids}"
        writer = self._made.writer(self._library, self._run.bootstrap, name, transactional_id)
        made = Producer(self._run, writer, name, transactional_id)
        if not await made.start():
            await sleep(PAUSE_S, self._run.sending)
        return made

    async def _transaction(self, producer: Producer) -> Producer:
        """Returns the producer of the next one."""
        fate = self._chance.choices(list(FATES), list(FATES.values()))[0]
        transaction = await producer.begin()
        if transaction is None:
            return producer
        try:
            await self._write(producer, transaction)
        except Exception as error:
            await producer.give_up(transaction, error)
            return producer
        if fate == "commit":
            await producer.commit(transaction)
        elif fate == "abort":
            await producer.give_up(transaction)
        elif fate == "leave":
            transaction.completed_s = self._run.now_s()
            await producer.close()
            self._ids += self._chance.randint(0, 1)  # another id: only its timeout ends the transaction
            return await self._next()
        else:
            successor = await self._next()
            self._zombies.append(asyncio.create_task(self._be_a_zombie(producer, transaction)))
            return successor
        return producer

    async def _write(self, producer: Producer, transaction: Transaction) -> None:
        for _ in range(self._chance.randint(1, WRITES_MAX)):
            await producer.write(transaction, self._run, self._chance.randrange(PARTITIONS))
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.uniform(0, EVERY_S))

    async def _be_a_zombie(self, producer: Producer, transaction: Transaction) -> None:
        """Write on, or do not, and commit, though another has started, which may have a transaction open by then."""
        try:
            await asyncio.sleep(self._chance.uniform(0, WAKES_S))
            if self._chance.random() < 0.5:
                await self._write(producer, transaction)
        except Exception as error:
            await producer.give_up(transaction, error)
        else:
            await producer.commit(transaction)
        await producer.close()


# --- Copies -----------------------------------------------------------------------------------------------------------


async def copy(sources: Run, copies: Run, made: Libraries, library: str) -> None:
    """Be a member of the group that copies each partition of one topic into the same of the other, until the second is
    read to its end. A member leaves now and then, and whenever it does not know what became of its transaction."""
    count = 0
    chance = sources.chance(f"{library}-c")
    while not copies.sending.is_set():
        count += 1
        await _Copying(sources, copies, made, library, f"{library}-c{count}").run(chance)


class _Copying:
    def __init__(self, sources: Run, copies: Run, made: Libraries, library: str, name: str) -> None:
        self._sources = sources
        self._copies = copies
        transactional_id = f"{copies.topic}-{library}"
        writer = made.writer(library, sources.bootstrap, f"{name}-producer", transactional_id)
        self._producer = Producer(sources, writer, name, transactional_id)
        self._reader: Copier = made.reader(library, sources.bootstrap, sources.topic, name, sources.group)
        self._reading = Reading(sources, self._reader, name, sources.group)

    async def run(self, chance: random.Random) -> None:
        try:
            await self._copy(chance)
        except Exception as error:
            self._sources.history.note(self._producer.name, error)
            await sleep(PAUSE_S, self._copies.sending)
        await close(self._sources, self._reader, self._producer.name)
        await self._producer.close()

    async def _copy(self, chance: random.Random) -> None:
        await asyncio.wait_for(self._reader.start(), START_S)
        if not await self._producer.start():
            return
        await self._reader.subscribe()
        leaves_at_s = self._sources.now_s() + chance.uniform(*STAYS_S)
        while not self._copies.sending.is_set() and not self._producer.is_over:
            if self._sources.now_s() > leaves_at_s and not self._sources.ends:
                return
            came = await self._reading.poll()
            if came and not await self._transaction(came, abort=chance.random() < ABORTS and not self._sources.ends):
                return

    async def _transaction(self, came: Mapping[int, list[tuple[int, str]]], abort: bool) -> bool:
        """Whether its outcome is known, and the reader is where it must go on."""
        transaction = await self._producer.begin()
        if transaction is None:
            return False
        try:
            member = await self._reader.metadata()
            for partition, records in came.items():
                for offset, _ in records:
                    await self._producer.write(transaction, self._copies, partition, (partition, offset))
            ends = {partition: records[-1][0] + 1 for partition, records in came.items()}
            await self._producer.offsets(transaction, self._sources, ends, member)
        except Exception as error:
            await self._producer.give_up(transaction, error)
        else:
            if abort:
                await self._producer.give_up(transaction)
            else:
                await self._producer.commit(transaction)
        if transaction.outcome == OK:
            return True
        if transaction.outcome == INFO or self._producer.is_over:
            return False
        await self._reader.rewind({partition: records[0][0] for partition, records in came.items()})
        return True


async def wait_until_copied(sources: Run) -> None:
    """Until the coordinator tells that the group is at the ends."""
    deadline_s = sources.now_s() + SETTLE_S
    while True:
        told = {each.partition: each.offset for each in sources.history.committed}
        if all(told.get(partition, -1) >= end for partition, end in sources.ends.items()):
            return
        if sources.now_s() > deadline_s:
            sources.history.unfinished.append(f"the group is at {told}, the ends are at {sources.ends}")
            return
        await asyncio.sleep(PAUSE_S)
