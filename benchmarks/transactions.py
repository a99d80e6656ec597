"""The cases of transactions: small ones by librdkafka, what many open ones hold, and readers of committed ones."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Any

import uvloop

from integration_tests.groups.members import Line, together
from isthmus.protocol import records
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import add_partitions_to_txn, find_coordinator, init_producer_id, produce

from .bulk import Consume
from .cases import KEPT_BYTES, PARTITIONS, SMALL_BYTES, VALUE_BYTES, Bench, Sample, alongside
from .frames import PRODUCE_VERSION, TIMEOUT_MS
from .sides import Side

RECORDS = 100  # of a transaction
OPEN = 1_000
CONNECTING = 100  # at once: brokers take so many that wait to be accepted
FILLING = 4  # producers that write what is read
FILL_S = 100.0
OPEN_MS = 600_000  # how long a transaction may be open
ADD_VERSION, INIT_VERSION = 3, 4  # the newest of clients without transaction version 2
TRANSACTION = 1  # the type of such a coordinator
MIB = 1 << 20
PAUSE_S = 0.02
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_names = itertools.count()


async def _taken(line: Line, request: Any, version: int) -> Any:
    """The answer, once the broker takes the request. Raises KafkaError if it never will."""
    while True:
        answer = await line.ask(request, version)
        code = _code(answer)
        if not code:
            return answer
        if code not in RETRIABLE:
            raise KafkaError(code, f"of {type(request).API.name}")
        await asyncio.sleep(PAUSE_S)


def _code(answer: Any) -> ErrorCode:
    """The first error."""
    if isinstance(answer, find_coordinator.Response):
        answer = answer.coordinators[0]
    elif isinstance(answer, produce.Response):
        answer = answer.responses[0].partition_responses[0]
    elif isinstance(answer, add_partitions_to_txn.Response):
        result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return ErrorCode(result.partition_error_code)
    return ErrorCode(answer.error_code)


class Transactions(Bench):
    """Transactions of 100 records of 100 bytes by librdkafka, in turn. producers: at once, of one process."""

    def __init__(self, side: Side, seconds: float, *, producers: int) -> None:
        super().__init__(side, seconds)
        self.producers = producers

    def measure(self, seconds: float) -> Sample:
        name = self.begun_topic(PARTITIONS)
        [got], cpu_s = alongside(
            self.side, "benchmarks.transacting", self.side.address, name, f"--partitions={PARTITIONS}",
            f"--producers={self.producers}", f"--records={RECORDS}", f"--value-bytes={SMALL_BYTES}",
            f"--seconds={seconds}",
        )  # fmt: skip
        self.side.delete_topic(name)
        return {
            "commits": got["commits"] / got["seconds"],
            "cpu": cpu_s / got["commits"] * 1000,
            "p50": got["p50_ms"],
            "p99": got["p99_ms"],
        }


class ConsumeTransactions(Consume):
    """A consumer that reads ahead, from the page cache, of committed transactions of 100 records."""

    def prepare(self) -> None:
        self.name = self.topic(self.partitions)
        alongside(
            self.side, "benchmarks.transacting", self.side.address, self.name, f"--partitions={self.partitions}",
            f"--producers={FILLING}", f"--records={RECORDS}", f"--value-bytes={self.value_bytes}",
            f"--seconds={FILL_S}", f"--max-commits={KEPT_BYTES // (RECORDS * VALUE_BYTES)}",
        )  # fmt: skip


class OpenTransactions(Bench):
    """A broker just started; 1,000 producers, each on a connection of its own with a record in an open transaction."""

    warms_by_load = False

    def prepare(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.name = self.topic(PARTITIONS)
        self.lines: list[Line] = []

    def warm(self, seconds: float) -> None:
        """Nothing: each sample starts the broker anew."""

    def prepare_sample(self) -> None:
        self._close()
        self.side.restart()
        self.loop.run_until_complete(self._open(1))  # whatever is made with the first one is there

    def measure(self, seconds: float) -> Sample:
        before = self.side.rss_bytes()
        self.loop.run_until_complete(self._open(OPEN))
        after = self.side.rss_bytes()
        return {"rss": after / MIB, "grown": (after - before) / MIB, "each": (after - before) / OPEN / 1024}

    async def _open(self, count: int) -> None:
        lines: list[Line] = []
        while len(lines) < count:
            lines += await together(Line.to(self.side.address) for _ in range(min(CONNECTING, count - len(lines))))
        self.lines += lines
        for at in range(0, count, CONNECTING):
            await together(self._begin(line) for line in lines[at : at + CONNECTING])

    async def _begin(self, line: Line) -> None:
        number = next(_names)
        key, partition = f"bench-{os.getpid()}-{number}", number % PARTITIONS
        found = find_coordinator.Request(key_type=TRANSACTION, coordinator_keys=[key])
        await _taken(line, found, find_coordinator.API.max_version)
        init = init_producer_id.Request(transactional_id=key, transaction_timeout_ms=OPEN_MS)
        producer = await _taken(line, init, INIT_VERSION)
        topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=self.name, partitions=[partition])
        add = add_partitions_to_txn.Request(
            v3_and_below_transactional_id=key, v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch, v3_and_below_topics=[topic],
        )  # fmt: skip
        await _taken(line, add, ADD_VERSION)
        batch = records.build_batch(
            [(0, None, os.urandom(SMALL_BYTES), ())], producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, base_sequence=0, transactional=True,
        )  # fmt: skip
        data = [produce.PartitionProduceData(index=partition, records=bytes(batch))]
        send = produce.Request(
            transactional_id=key, acks=-1, timeout_ms=TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=self.name, partition_data=data)],
        )  # fmt: skip
        await _taken(line, send, PRODUCE_VERSION)

    def _close(self) -> None:
        for line in self.lines:
            line.close()
        self.lines.clear()
        self.loop.run_until_complete(asyncio.sleep(0))

    def clean(self) -> None:
        self._close()
        self.loop.close()
