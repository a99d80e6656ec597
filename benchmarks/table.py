"""The list of cases: name, what runs, which figures it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .cases import Bench, ColdStart, Fetch, FetchBatches, Idle, OneConnection, Produce, ProduceBatches, SmallRequests
from .groups import Rebalance
from .workers import Counts, Mirror, MirrorMaker


class Metric(NamedTuple):
    """A figure. key: its name in a sample. lower: it is a cost, less is better."""

    key: str
    unit: str
    lower: bool = False


ISTHMUS, KAFKA = "Isthmus", "Kafka"
BOTH = ISTHMUS, KAFKA


@dataclass(frozen=True)
class Case:
    """sides: who runs it. pairs_max: for what takes long and tells little more the second time.
    fresh: on brokers of its own, which other cases have not warmed."""

    name: str
    bench: type[Bench]
    metrics: tuple[Metric, ...]
    sides: tuple[str, ...] = BOTH
    pairs_max: int = 1000
    fresh: bool = False

    @property
    def what(self) -> str:
        return (self.bench.__doc__ or "").splitlines()[0]


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
IDLE = (Metric("rss", "MiB", lower=True), Metric("cpu", "% of a core", lower=True))

CASES = (
    Case("small-100", SmallRequests, SMALL),
    Case("small-1", OneConnection, SMALL),
    Case("produce", Produce, BULK),
    Case("produce-batches", ProduceBatches, BULK),
    Case("fetch", Fetch, BULK),
    Case("fetch-batches", FetchBatches, BULK),
    Case("rebalance-50", Rebalance, REBALANCE),
    Case("idle", Idle, IDLE, fresh=True),
    Case("cold-start", ColdStart, (Metric("start", "s", lower=True),), fresh=True),
    Case("mirror", Mirror, BULK, (ISTHMUS,)),
    Case("mirror-maker", MirrorMaker, BULK, (KAFKA,), pairs_max=1),
    Case("streams", Counts, (Metric("rate", "events/s"), Metric("cpu", "events/CPU-s")), (ISTHMUS,)),
)
