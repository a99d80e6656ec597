"""How the metrics of the table are read: functions from a scrape to samples."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from ...protocol.records import COMPILED
from ..coordinators.group_states import State
from ..replication.partition import Partition
from ..server.latency import BOUNDS_NS, percentile_ns
from .exposition import Sample
from .scrape import Scrape

PERCENTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")  # those that the exporter shows of Kafka's histograms
STEPS = (0, 4, 7)  # of a decade's ten buckets, those that the histogram shows: 1, 2.5, 5
PAGE_BYTES = resource.getpagesize()
FETCH = "Fetch"
FETCH_CONSUMER = "FetchConsumer"  # Kafka's name for the fetches of consumers, beside the sum with followers

Read = Callable[[Scrape], Iterable[Sample]]


def value(read: Callable[[Scrape], float]) -> Read:
    """One sample without labels."""
    return lambda scrape: (Sample((), read(scrape)),)


def serving(read: Callable[[Scrape], float]) -> Read:
    """One sample without labels, while the broker serves."""
    return lambda scrape: () if scrape.sources.rooms is None else (Sample((), read(scrape)),)


def traffic(name: str) -> Read:
    """A count of Traffic, for all topics and for each."""
    count = attrgetter(name)

    def samples(scrape: Scrape) -> Iterator[Sample]:
        if scrape.sources.rooms is not None:
            yield Sample((), count(scrape.overall))
            for topic, counts in scrape.by_topic.items():
                yield Sample((topic,), count(counts))

    return samples


def overall(name: str) -> Read:
    """A count of Traffic, for all topics together alone."""
    count = attrgetter(name)
    return serving(lambda scrape: count(scrape.overall))


# --- Requests ---------------------------------------------------------------------------------------------------------


def _names(name: str) -> tuple[str, ...]:
    return (FETCH, FETCH_CONSUMER) if name == FETCH else (name,)


def requests(scrape: Scrape) -> Iterator[Sample]:
    counts: dict[tuple[str, int], int] = {}
    for route in scrape.routes:  # of listeners for clients, and for controllers
        key = route.api.name, route.version
        counts[key] = counts.get(key, 0) + route.requests
    for (api, version), count in counts.items():
        for name in _names(api):
            yield Sample((name, str(version)), count)


def times(local: bool) -> Read:
    """Kafka's TotalTimeMs, or LocalTimeMs."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        for api, latency in scrape.latencies:
            counts, sum_ns = latency.local() if local else latency.total()
            recent = scrape.sources.windows.recent(f"{api} {local}", counts, scrape.loop_time)
            told = [
                *(Sample((), percentile_ns(recent, float(each)) / 1e6, "", ("quantile", each)) for each in PERCENTILES),
                Sample((), sum_ns / 1e6, "_sum"),
                Sample((), sum(counts), "_count"),
            ]
            for name in _names(api):
                for each in told:
                    yield Sample((name,), each.value, each.suffix, each.extra)

    return samples


def histogram(scrape: Scrape) -> Iterator[Sample]:
    for api, latency in scrape.latencies:
        counts, sum_ns = latency.total()
        seen = 0
        for number, bound_ns in enumerate(BOUNDS_NS):
            seen += counts[number]
            if number % 10 in STEPS:
                yield Sample((api,), seen, "_bucket", ("le", repr(bound_ns / 1e9)))
        total = sum(counts)
        yield Sample((api,), total, "_bucket", ("le", "+Inf"))
        yield Sample((api,), sum_ns / 1e9, "_sum")
        yield Sample((api,), total, "_count")


def connections(scrape: Scrape) -> Iterator[Sample]:
    for listener in scrape.sources.server.every_listener:
        yield Sample((listener.name,), listener.connections)


def connections_taken(scrape: Scrape) -> Iterator[Sample]:
    for listener in scrape.sources.server.every_listener:
        yield Sample((listener.name,), listener.taken)


# --- Partitions -------------------------------------------------------------------------------------------------------


def groups_in(state: State) -> Read:
    return serving(lambda scrape: scrape.groups[state])


def consumer_groups(scrape: Scrape) -> Iterator[Sample]:
    for state, count in scrape.consumer_groups.items():
        yield Sample((state.value,), count)


def unread_groups(scrape: Scrape) -> Iterator[Sample]:
    for index, reason in scrape.unread_groups.items():
        yield Sample((str(index), reason), 1)


def transactions(scrape: Scrape) -> Iterator[Sample]:
    if scrape.sources.rooms is not None:
        for state, count in scrape.rooms.transactions.counts().items():
            yield Sample((state.value,), count)


def unread_transactions(scrape: Scrape) -> Iterator[Sample]:
    if scrape.sources.rooms is not None:
        for index, reason in scrape.rooms.transactions.unread().items():
            yield Sample((str(index), reason), 1)


def of_partitions(read: Callable[[Partition], int]) -> Read:
    def samples(scrape: Scrape) -> Iterator[Sample]:
        for partition in scrape.partitions:
            yield Sample((partition.topic, str(partition.index)), int(read(partition)))

    return samples


def replica_lags(scrape: Scrape) -> Iterator[Sample]:
    if scrape.sources.rooms is not None:
        for (topic, index), lag in scrape.rooms.fetching.lags().items():
            yield Sample((topic, str(index)), lag)


def under_replicated(partition: Partition) -> bool:
    """As a leader knows it; as in Kafka, of no partition that is followed here."""
    return partition.leads and len(partition.isr) < len(partition.replicas)


def under_min_isr(partition: Partition) -> bool:
    return partition.leads and len(partition.isr) < partition.least_in_sync


def at_min_isr(partition: Partition) -> bool:
    return partition.leads and len(partition.isr) == partition.least_in_sync


def partition_count(scrape: Scrape) -> int:
    open_ones = {(each.topic, each.index): None for each in scrape.partitions}  # some of them have failed since
    return len({**open_ones, **scrape.offline})


def leader_count(scrape: Scrape) -> int:
    image, node_id = scrape.rooms.image, scrape.sources.node_id
    return sum(each.leader == node_id for topic in image.topics.values() for each in topic.partitions.values())


def offline(scrape: Scrape) -> Iterator[Sample]:
    for (topic, index), reason in scrape.offline.items():
        yield Sample((topic, str(index), reason), 1)


def global_partitions(scrape: Scrape) -> int:
    return sum(len(topic.partitions) for topic in scrape.rooms.image.topics.values())


def leaderless_partitions(scrape: Scrape) -> int:
    topics = scrape.rooms.image.topics.values()
    without = sum(each.leader < 0 for topic in topics for each in topic.partitions.values())
    return without + sum(map(len, scrape.rooms.replicas.leaderless.values()))


def reassigning_count(scrape: Scrape) -> int:
    image, node_id = scrape.rooms.image, scrape.sources.node_id
    return sum(image.partition_by_key(key)[1].leader == node_id for key in image.index.moving)


ROLES = {"Leader": "leader", "Follower": "follower", "Candidate": "candidate", "Prospective": "prospective"}
ROLES |= {"Unattached": "unattached", "Resigned": "resigned"}


def quorum_state(scrape: Scrape) -> Iterator[Sample]:
    raft = None if scrape.sources.rooms is None else scrape.rooms.controller.metadata.raft
    if raft is not None:
        observes = "observer" if raft.me.id not in raft.voters.last.ids else ""
        yield Sample((observes or ROLES[type(raft.role).__name__],), 1)


def election_latency(of: Callable[[list[int]], float]) -> Read:
    """of: makes one number of milliseconds, of which there are some. Nothing is told while there are none."""

    def samples(scrape: Scrape) -> Iterator[Sample]:
        if scrape.sources.rooms is not None and (found := scrape.rooms.controller.metadata.election_latencies_ms):
            yield Sample((), of(found))

    return samples


def metadata_lag_ms(scrape: Scrape) -> int:
    metadata = scrape.rooms.controller.metadata
    if metadata.applied_offset >= metadata.high_watermark:
        return 0  # unlike Kafka, nothing is written while nothing changes
    return max(0, scrape.sources.runtime.wall_ms() - metadata.applied_timestamp_ms)


# --- The process ------------------------------------------------------------------------------------------------------


def build(scrape: Scrape) -> Iterator[Sample]:
    yield Sample((scrape.sources.version, "compiled" if COMPILED else "plain Python", str(scrape.sources.node_id)), 1)


def cpu_seconds(scrape: Scrape) -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes(scrape: Scrape) -> int:
    return int(scrape.sources.files.read("/proc/self/statm").split()[1]) * PAGE_BYTES


def open_files(scrape: Scrape) -> int:
    return len(scrape.sources.files.listdir("/proc/self/fd"))


def max_files(scrape: Scrape) -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
