"""The list of cases: name, what runs, which figures it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .bulk import Consume, Produce, ProduceAndConsume, Replay
from .cases import Bench, ColdStart, FetchBatches, Idle, OneConnection, ProduceBatches, SmallRequests
from .clusters import CatchUp, ManyReplicas, Stall
from .disk import Cold, ColdBusy, FastLatency, Fsync, FsyncSmall, Latency
from .groups import ConsumerHeartbeats, ConsumerRebalance, Rebalance
from .partitions import Partitions
from .sides import ISTHMUS, KAFKA
from .transactions import ConsumeTransactions, OpenTransactions, Transactions
from .workers import Counts, Mirror, MirrorMaker


class Metric(NamedTuple):
    """A figure. key: its name in a sample. lower: it is a cost, less is better."""

    key: str
    unit: str
    lower: bool = False


BOTH = ISTHMUS, KAFKA


@dataclass(frozen=True)
class Case:
    """sides: who runs it. options: of the bench. pairs_max: for what takes long and tells little more the second time.
    fresh: on brokers of its own, which other cases have not warmed. size: brokers of a side."""

    name: str
    bench: type[Bench]
    metrics: tuple[Metric, ...]
    sides: tuple[str, ...] = BOTH
    options: Mapping[str, Any] = field(default_factory=dict)
    pairs_max: int = 1000
    fresh: bool = False
    size: int = 1

    @property
    def what(self) -> str:
        said = (self.bench.__doc__ or "").splitlines()[0]
        return f"{said} {', '.join(f'{key}={value}' for key, value in self.options.items())}".strip()


SMALL = (
    Metric("requests", "requests/s"),
    Metric("cpu", "CPU-µs/request", lower=True),
    Metric("p50", "p50 ms", lower=True),
    Metric("p99", "p99 ms", lower=True),
)
BULK = (Metric("rate", "MB/s"), Metric("cpu", "CPU-s/GB", lower=True))
REBALANCE = (
    Metric("p50", "p50 ms", lower=True),
    Metric("worst", "longest ms", lower=True),
    Metric("cpu", "CPU-ms/rebalance", lower=True),
)
HEARTBEATS = (
    Metric("cpu", "% of a core", lower=True),
    Metric("each", "CPU-µs/heartbeat", lower=True),
    Metric("p50", "p50 ms", lower=True),
    Metric("p99", "p99 ms", lower=True),
)
TRANSACTIONS = (
    Metric("commits", "commits/s"),
    Metric("cpu", "CPU-ms/transaction", lower=True),
    Metric("p50", "p50 ms", lower=True),
    Metric("p99", "p99 ms", lower=True),
)
OPEN_TRANSACTIONS = (
    Metric("rss", "MiB", lower=True),
    Metric("grown", "MiB more", lower=True),
    Metric("each", "KiB/producer", lower=True),
)
LATE = (
    Metric("p50", "p50 ms", lower=True),
    Metric("p99", "p99 ms", lower=True),
    Metric("p999", "p99.9 ms", lower=True),
    Metric("max", "longest ms", lower=True),
)
OPEN_LOOP = (*LATE, Metric("cpu", "CPU-µs/record", lower=True))
FSYNC = (Metric("rate", "records/s"), Metric("cpu", "CPU-µs/record", lower=True))
COLD = (*LATE, *BULK)
PARTITIONS = (
    Metric("create", "s to create", lower=True),
    Metric("rss", "MiB", lower=True),
    Metric("first", "s for the first two batches in each", lower=True),
    *BULK,
    Metric("loaded", "MiB after the load", lower=True),
    Metric("idle", "% of a core idle", lower=True),
    Metric("stop", "s to stop", lower=True),
    Metric("start", "s to start", lower=True),
    Metric("metadata", "CPU-ms for metadata of all", lower=True),
    Metric("killed", "s to start after a kill", lower=True),
    Metric("delete", "s to delete", lower=True),
)
IDLE = (Metric("rss", "MiB", lower=True), Metric("cpu", "% of a core", lower=True))

STALL = (Metric("stall", "longest ms without an acknowledgement", lower=True), Metric("failed", "records", lower=True))
FAULTS = ("kill", "leader"), ("kill", "follower"), ("kill", "controller"), ("hang", "leader"), ("stop", "leader")
REPLICAS = (
    Metric("create", "s to create", lower=True),
    Metric("rss", "MiB a broker", lower=True),
    Metric("failover", "s until others lead what one led", lower=True),
    Metric("start", "s to start all", lower=True),
)
CATCH_UP = (*BULK, Metric("p99", "p99 ms of others", lower=True), Metric("max", "longest ms of others", lower=True))

REPLAYED = (
    Metric("in", "messages/s in"),
    Metric("out", "messages/s out"),
    Metric("both", "messages/s in, then out"),
    Metric("cpu", "CPU-µs/message in", lower=True),
)


def _bulk() -> Iterator[Case]:
    """Each of producer and consumer by client, record size and codec: `java-produce-100-lz4`."""
    for java in False, True:
        client = "java-" if java else ""
        for size, value_bytes in ("1k", 1024), ("100", 100):
            of = {"java": java, "value_bytes": value_bytes}
            yield Case(f"{client}produce-{size}", Produce, BULK, options=of)
            yield Case(f"{client}produce-{size}-lz4", Produce, BULK, options={**of, "codec": "lz4"})
            yield Case(f"{client}consume-{size}", Consume, BULK, options=of)


CASES = (
    Case("small-100", SmallRequests, SMALL),
    Case("small-1", OneConnection, SMALL),
    *_bulk(),
    # Such a client is itself what ends the rate: its application's thread has a core to itself.
    Case("python-produce-100", Produce, BULK, options={"value_bytes": 100, "python": True}),
    Case("python-consume-100", Consume, BULK, options={"value_bytes": 100, "python": True}),
    Case("produce-1k-lz4-by-2", Produce, BULK, options={"value_bytes": 1024, "codec": "lz4", "clients": 2}),
    Case("produce-100-by-2", Produce, BULK, options={"value_bytes": 100, "clients": 2}),
    Case("produce-100-lz4-by-2", Produce, BULK, options={"value_bytes": 100, "codec": "lz4", "clients": 2}),
    Case("produce-and-consume", ProduceAndConsume, BULK),
    Case("replay-lz4", Replay, REPLAYED),
    Case("produce-batches", ProduceBatches, BULK),
    Case("fetch-batches", FetchBatches, BULK),
    Case("latency-1k", Latency, OPEN_LOOP),
    Case("latency-5k", FastLatency, OPEN_LOOP),
    Case("fsync", Fsync, FSYNC, options={"value_bytes": 100}),
    Case("fsync-by-2", Fsync, FSYNC, options={"value_bytes": 100, "clients": 2}),
    Case("fsync-1k", Fsync, FSYNC, options={"value_bytes": 1024}),
    Case("fsync-in-flight", Fsync, FSYNC, options={"value_bytes": 100, "batch_records": 10}),
    Case("fsync-100", FsyncSmall, SMALL),
    Case("cold", Cold, COLD, pairs_max=5),
    Case("cold-busy", ColdBusy, COLD, pairs_max=5),
    Case("rebalance-50", Rebalance, REBALANCE),
    Case("rebalance-848-50", ConsumerRebalance, REBALANCE),
    Case("heartbeats-848-1000", ConsumerHeartbeats, HEARTBEATS),
    Case("transactions-100", Transactions, TRANSACTIONS, options={"producers": 1}),
    Case("transactions-100-by-10", Transactions, TRANSACTIONS, options={"producers": 10}),
    Case("transactions-open-1000", OpenTransactions, OPEN_TRANSACTIONS, fresh=True),
    Case("consume-1k-committed", ConsumeTransactions, BULK),
    Case("consume-1k-uncommitted", ConsumeTransactions, BULK, options={"isolation": "read_uncommitted"}),
    Case("produce-1k-idempotent", Produce, BULK, options={"kind": "idempotent"}),
    Case("produce-1k-transactional", Produce, BULK, options={"kind": "transactional"}),
    Case("partitions", Partitions, PARTITIONS, pairs_max=2, fresh=True),
    Case("idle", Idle, IDLE, fresh=True),
    Case("cold-start", ColdStart, (Metric("start", "s", lower=True),), fresh=True),
    Case("rf3-produce-1k", Produce, BULK, options={"value_bytes": 1024}, size=3),
    Case("rf3-produce-100", Produce, BULK, options={"value_bytes": 100}, size=3),
    Case("rf3-latency-1k", Latency, OPEN_LOOP, size=3),
    *(Case(f"{fault}-{who}", Stall, STALL, options={"fault": fault, "who": who}, size=3) for fault, who in FAULTS),
    Case("replicas-10000", ManyReplicas, REPLICAS, options={"count": 10_000}, pairs_max=1, fresh=True, size=3),
    Case("catch-up", CatchUp, CATCH_UP, options={"behind_bytes": 2 << 30}, pairs_max=2, size=3),
    Case("idle-3", Idle, IDLE, fresh=True, size=3),
    Case("mirror", Mirror, BULK, (ISTHMUS,)),
    Case("mirror-maker", MirrorMaker, BULK, (KAFKA,), pairs_max=1),
    Case("streams", Counts, (Metric("rate", "events/s"), Metric("cpu", "events/CPU-s")), (ISTHMUS,)),
)
