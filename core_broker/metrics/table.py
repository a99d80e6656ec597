"""All metrics in one table: name, type, labels, description, and how it is read.

A metric that Kafka has too gets the name that Prometheus' JMX exporter derives from Kafka's MBean by its usual rules:
`kafka.server:type=ReplicaManager,name=LeaderCount` is kafka_server_replicamanager_leadercount. Names with isthmus_ are
our own; names with process_ are those of every Prometheus client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..coordinators.group_states import State
from . import read
from .exposition import Family, Sample, Type
from .scrape import Scrape

Read = Callable[[Scrape], Iterable[Sample]]


@dataclass(slots=True, frozen=True)
class Metric:
    """A row. mbean: Kafka's type and name, if it has one, without labels that have no meaning here."""

    family: Family
    read: Read
    mbean: str = ""


def _row(name: str, kind: Type, help: str, read: Read, *labels: str) -> Metric:
    return Metric(Family(name, kind, labels, help), read)


def _kafka(kind: Type, mbean: str, help: str, read: Read, *labels: str) -> Metric:
    return Metric(Family(exported_name(mbean), kind, labels, help), read, mbean)


def exported_name(mbean: str) -> str:
    """The exporter's name for an MBean, given as `kafka.server:type=ReplicaManager,name=LeaderCount`."""
    domain, _, rest = mbean.partition(":")
    values = [pair.partition("=")[2] for pair in rest.split(",")]
    kind, name = values[0], values[1]
    if name.endswith("PerSec"):
        name = f"{name.removesuffix('PerSec')}_total"
    return "_".join([*domain.split("."), kind, name]).replace("-", "_").lower()


C, G, S, H = Type.COUNTER, Type.GAUGE, Type.SUMMARY, Type.HISTOGRAM
_TOPIC = "kafka.server:type=BrokerTopicMetrics,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_RAFT = "kafka.server:type=raft-metrics,name="
_METADATA = "kafka.server:type=broker-metadata-metrics,name="
_PARTITION = "kafka.cluster:type=Partition,name="
_LOG = "kafka.log:type=Log,name="
_REQUEST = "kafka.network:type=RequestMetrics,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_SOCKETS = "kafka.server:type=socket-server-metrics,name="


def _applied(timestamp: str, lag: str) -> Iterable[Metric]:
    """Kafka has both for its brokers and for its controllers."""
    yield _kafka(G, timestamp, "When that was written, in milliseconds since 1970",
                 read.serving(lambda scrape: scrape.rooms.controller.metadata.applied_timestamp_ms))  # fmt: skip
    yield _kafka(G, lag, "Milliseconds since then while a later one is committed; else 0",
                 read.serving(read.metadata_lag_ms))  # fmt: skip


METRICS: tuple[Metric, ...] = (
    # --- What goes in and out; without a label: of all topics, deleted ones too ---
    _kafka(C, f"{_TOPIC}MessagesInPerSec", "Records appended, duplicates too", read.traffic("messages_in"), "topic"),
    _kafka(C, f"{_TOPIC}BytesInPerSec", "Bytes appended, as on the wire", read.traffic("bytes_in"), "topic"),
    _kafka(C, f"{_TOPIC}BytesOutPerSec", "Bytes of records sent to consumers", read.traffic("bytes_out"), "topic"),
    _kafka(C, f"{_TOPIC}BytesRejectedPerSec", "Bytes of batches refused for their size", read.traffic("bytes_refused"),
           "topic"),
    _kafka(C, f"{_TOPIC}TotalProduceRequestsPerSec", "Append requests, counted by partition", read.traffic("appends"),
           "topic"),
    _kafka(C, f"{_TOPIC}FailedProduceRequestsPerSec", "Those of them that failed; batches that are corrupt or too "
           "large do not count", read.traffic("failed_appends"), "topic"),
    _kafka(C, f"{_TOPIC}TotalFetchRequestsPerSec", "Reads answered, counted by partition", read.traffic("fetches"),
           "topic"),
    _kafka(C, f"{_TOPIC}FailedFetchRequestsPerSec", "Those of them that failed; offsets out of range and wrong leader "
           "epochs do not count", read.traffic("failed_fetches"), "topic"),
    _kafka(C, f"{_TOPIC}ReplicationBytesInPerSec", "Bytes copied from leaders",
           read.overall("replication_bytes_in")),
    _kafka(C, f"{_TOPIC}ReplicationBytesOutPerSec", "Bytes of records sent to followers",
           read.overall("replication_bytes_out")),
    # --- Requests ---
    _kafka(C, f"{_REQUEST}RequestsPerSec", "Requests by name and version", read.requests, "request", "version"),
    _kafka(S, f"{_REQUEST}TotalTimeMs", "Milliseconds from a request's arrival to its answer; percentiles of the last "
           "one to two minutes", read.times(local=False), "request"),
    _kafka(S, f"{_REQUEST}LocalTimeMs", "The same without the time spent waiting for events", read.times(local=True),
           "request"),
    _row("isthmus_request_seconds", H, "From a request's arrival to its answer, as a histogram that can be summed over "
         "brokers", read.histogram, "request"),
    _row("isthmus_pending_requests", G, "Requests that wait for an event: more records, replicas, a rebalance",
         read.value(lambda scrape: len(scrape.sources.purgatory))),
    # --- Connections ---
    _kafka(G, f"{_SOCKETS}connection-count", "Open connections", read.connections, "listener"),
    _kafka(C, f"{_SOCKETS}connection-creation-total", "Connections taken", read.connections_taken, "listener"),
    _kafka(G, "kafka.network:type=SocketServer,name=MemoryPoolUsed", "Bytes of requests that are being read",
           read.value(lambda scrape: scrape.sources.server.memory.held_bytes)),
    _kafka(G, "kafka.network:type=SocketServer,name=MemoryPoolAvailable", "Bytes that there is room for still",
           read.value(lambda scrape: scrape.sources.server.memory.free_bytes)),
    # --- Partitions of this broker ---
    _kafka(G, f"{_REPLICAS}PartitionCount", "Partitions here", read.serving(read.partition_count)),
    _kafka(G, f"{_REPLICAS}LeaderCount", "Those that this broker leads", read.serving(read.leader_count)),
    _kafka(G, f"{_REPLICAS}OfflineReplicaCount", "Those that are offline, or read-only for lack of disk space: see "
           "isthmus_partition_offline",
           read.serving(lambda scrape: len(scrape.offline))),
    _kafka(G, f"{_REPLICAS}UnderReplicatedPartitions", "Led here, with replicas that are not in sync",
           read.serving(lambda scrape: sum(map(read.under_replicated, scrape.partitions)))),
    _kafka(G, f"{_REPLICAS}UnderMinIsrPartitionCount", "Led here, with fewer replicas in sync than acks=all requires",
           read.serving(lambda scrape: sum(map(read.under_min_isr, scrape.partitions)))),
    _kafka(G, f"{_REPLICAS}AtMinIsrPartitionCount", "Led here, with just as many in sync as acks=all requires",
           read.serving(lambda scrape: sum(map(read.at_min_isr, scrape.partitions)))),
    _kafka(G, f"{_REPLICAS}ReassigningPartitions", "Led here, on their way to other brokers",
           read.serving(read.reassigning_count)),
    _kafka(C, f"{_REPLICAS}IsrShrinksPerSec", "Times that what lagged behind this leader was taken out of sync",
           read.serving(lambda scrape: scrape.rooms.isr_changes.shrinks)),
    _kafka(C, f"{_REPLICAS}IsrExpandsPerSec", "Times that what had caught up was taken in",
           read.serving(lambda scrape: scrape.rooms.isr_changes.expands)),
    _kafka(C, f"{_REPLICAS}FailedIsrUpdatesPerSec", "Such changes that the controller refused, or did not answer",
           read.serving(lambda scrape: scrape.rooms.isr_changes.failures)),
    _kafka(G, "kafka.server:type=ReplicaFetcherManager,name=MaxLag", "Records that a partition "
           "followed here lacks, of the one that is farthest behind",
           read.serving(lambda scrape: max(scrape.rooms.fetching.lags().values(), default=0))),
    _kafka(G, "kafka.server:type=FetcherLagMetrics,name=ConsumerLag", "Records that a partition followed here lacks",
           read.replica_lags, "topic", "partition"),
    _kafka(G, f"{_REPLICAS}ProducerIdCount", "Idempotent producers with state in memory",
           read.serving(lambda scrape: sum(len(each.log.producers) for each in scrape.partitions))),
    _kafka(G, "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "1 while a partition of the data directory is "
           "offline or read-only; its other partitions are served, unlike in Kafka",
           read.serving(lambda scrape: int(bool(scrape.offline)))),
    _row("isthmus_partition_offline", G, "1 for a partition that is offline, or read-only for lack of disk space, "
         "with the reason", read.offline, "topic", "partition", "reason"),
    _kafka(G, f"{_LOG}Size", "Bytes of a partition's log", read.of_partitions(lambda each: each.log.size_bytes),
           "topic", "partition"),
    _kafka(G, f"{_LOG}NumLogSegments", "Its segments", read.of_partitions(lambda each: each.log.segments_count),
           "topic", "partition"),
    _kafka(G, f"{_LOG}LogStartOffset", "Its first offset", read.of_partitions(lambda each: each.log.log_start_offset),
           "topic", "partition"),
    _kafka(G, f"{_LOG}LogEndOffset", "Its next offset", read.of_partitions(lambda each: each.log.log_end_offset),
           "topic", "partition"),
    _kafka(G, f"{_PARTITION}ReplicasCount", "Replicas of a partition",
           read.of_partitions(lambda each: len(each.replicas)), "topic", "partition"),
    _kafka(G, f"{_PARTITION}InSyncReplicasCount", "Those in sync", read.of_partitions(lambda each: len(each.isr)),
           "topic", "partition"),
    _kafka(G, f"{_PARTITION}UnderReplicated", "1 if not all replicas are in sync",
           read.of_partitions(read.under_replicated), "topic", "partition"),
    _kafka(G, f"{_PARTITION}UnderMinIsr", "1 if fewer are in sync than acks=all requires",
           read.of_partitions(read.under_min_isr), "topic", "partition"),
    _kafka(G, f"{_PARTITION}AtMinIsr", "1 if just as many are in sync as acks=all requires",
           read.of_partitions(read.at_min_isr), "topic",
           "partition"),
    _kafka(G, f"{_PARTITION}LastStableOffsetLag", "Records between the last stable offset and the high watermark",
           read.of_partitions(lambda each: each.high_watermark - each.last_stable_offset), "topic", "partition"),
    # --- Compaction ---
    _kafka(G, "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count", "Partitions that the log cleaner "
           "cannot compact; the log says why", read.serving(lambda scrape: len(scrape.rooms.cleaner.given_up))),
    _row("isthmus_compactions_total", C, "Rounds of the log cleaner",
         read.serving(lambda scrape: scrape.rooms.cleaner.rounds)),
    # --- Fetch sessions (KIP-227) ---
    _kafka(G, f"{_SESSIONS}NumIncrementalFetchSessions", "Fetch sessions",
           read.serving(lambda scrape: len(scrape.rooms.fetch_sessions))),
    _kafka(G, f"{_SESSIONS}NumIncrementalFetchPartitionsCached", "Partitions in them",
           read.serving(lambda scrape: scrape.rooms.fetch_sessions.partitions_count)),
    _kafka(C, f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec", "Sessions evicted in favour of others",
           read.serving(lambda scrape: scrape.rooms.fetch_sessions.evictions)),
    # --- Groups that this broker coordinates ---
    _kafka(G, f"{_GROUPS}NumGroups", "Classic groups", read.serving(lambda scrape: sum(scrape.groups.values()))),
    *(
        _kafka(G, f"{_GROUPS}NumGroups{state.value}", f"Those in state {state.value}", read.groups_in(state))
        for state in State
    ),
    _row("isthmus_consumer_groups", G, "Consumer groups (KIP-848)", read.consumer_groups, "state"),
    _kafka(G, f"{_GROUPS}NumOffsets", "Committed offsets",
           read.serving(lambda scrape: scrape.rooms.groups.offsets_count)),
    _row("isthmus_groups_unread", G, "1 for a partition of __consumer_offsets whose groups are not loaded yet, with "
         "the reason", read.unread_groups, "partition", "reason"),
    # --- Transactions that this broker coordinates ---
    _row("isthmus_transactions", G, "Transactional ids", read.transactions, "state"),
    _row("isthmus_transactions_marking", G, "Transactions that are decided and do not have all their markers yet",
         read.serving(lambda scrape: len(scrape.rooms.transactions.host.markers))),
    _row("isthmus_transactions_unread", G, "1 for a partition of __transaction_state whose transactions are not loaded "
         "yet, with the reason", read.unread_transactions, "partition", "reason"),
    # --- The cluster, as its controller sees it ---
    _kafka(G, f"{_CONTROLLER}ActiveControllerCount", "1 if this broker is the active controller",
           read.serving(lambda scrape: int(scrape.rooms.controller.metadata.is_leader))),
    _kafka(G, f"{_CONTROLLER}ActiveBrokerCount", "Registered brokers that are not fenced",
           read.serving(lambda scrape: sum(not each.fenced for each in scrape.rooms.image.brokers.values()))),
    _kafka(G, f"{_CONTROLLER}FencedBrokerCount", "Registered brokers that are fenced",
           read.serving(lambda scrape: sum(each.fenced for each in scrape.rooms.image.brokers.values()))),
    _kafka(G, f"{_CONTROLLER}GlobalTopicCount", "Topics", read.serving(lambda scrape: len(scrape.rooms.image.topics))),
    _kafka(G, f"{_CONTROLLER}GlobalPartitionCount", "Partitions", read.serving(read.global_partitions)),
    _kafka(G, f"{_CONTROLLER}OfflinePartitionsCount", "Partitions without a leader",
           read.serving(read.leaderless_partitions)),
    _kafka(G, f"{_CONTROLLER}LastAppliedRecordOffset", "Offset of the last metadata record",
           read.serving(lambda scrape: scrape.rooms.image.offset)),
    _kafka(G, f"{_CONTROLLER}LastCommittedRecordOffset", "Offset of the last one that is committed",
           read.serving(lambda scrape: scrape.rooms.controller.metadata.high_watermark - 1)),
    *_applied(f"{_CONTROLLER}LastAppliedRecordTimestamp", f"{_CONTROLLER}LastAppliedRecordLagMs"),
    _kafka(G, f"{_CONTROLLER}PreferredReplicaImbalanceCount", "Partitions that their preferred replica does not lead",
           read.serving(lambda scrape: len(scrape.rooms.image.index.imbalanced))),
    _kafka(G, f"{_CONTROLLER}MetadataErrorCount", "1 while the metadata log cannot be written or read here",
           read.serving(lambda scrape: int(scrape.rooms.controller.failure is not None))),
    _kafka(C, "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec", "Partitions for which this "
           "controller elected a leader that may lack committed records",
           read.serving(lambda scrape: scrape.rooms.controller.unclean_elections)),
    _kafka(C, "kafka.controller:type=ControllerStats,name=ElectionFromEligibleLeaderReplicasPerSec", "Partitions for "
           "which this controller elected an eligible leader replica, not in sync, that has all committed records",
           read.serving(lambda scrape: scrape.rooms.controller.elections_from_elr)),
    # --- The metadata quorum, as this node sees it ---
    _kafka(G, f"{_RAFT}current-state", "1, with this node's part in the quorum", read.quorum_state, "state"),
    _kafka(G, f"{_RAFT}current-leader", "Node id of the leader; -1 if none is known",
           read.serving(lambda scrape: scrape.rooms.controller.metadata.leader_id)),
    _kafka(G, f"{_RAFT}current-epoch", "Its epoch",
           read.serving(lambda scrape: scrape.rooms.controller.metadata.epoch)),
    _kafka(G, f"{_RAFT}high-watermark", "Records before it are committed",
           read.serving(lambda scrape: scrape.rooms.controller.metadata.high_watermark)),
    _kafka(G, f"{_RAFT}log-end-offset", "The next offset of this node's log",
           read.serving(lambda scrape: scrape.rooms.controller.log.end_offset)),
    _kafka(G, f"{_RAFT}number-of-voters", "Nodes that vote",
           read.serving(lambda scrape: len(scrape.rooms.controller.metadata.voters.voters))),
    _kafka(G, f"{_RAFT}election-latency-avg", "Milliseconds from this node's candidacy until a leader was known, in "
           "elections of the last minute", read.election_latency(lambda found: sum(found) / len(found))),
    _kafka(G, f"{_RAFT}election-latency-max", "The longest of them", read.election_latency(max)),
    _kafka(G, f"{_METADATA}last-applied-record-offset", "Offset of the last metadata record",
           read.serving(lambda scrape: scrape.rooms.image.offset)),
    *_applied(f"{_METADATA}last-applied-record-timestamp", f"{_METADATA}last-applied-record-lag-ms"),
    # --- The broker and its process ---
    _kafka(G, "kafka.server:type=KafkaServer,name=BrokerState", "1 starting, 2 recovering logs, 3 running, 7 stopping",
           read.value(lambda scrape: scrape.sources.state())),
    _row("isthmus_build_info", G, "1, with the release and whether the record loops are compiled", read.build,
         "version", "records", "node_id"),
    _row("process_start_time_seconds", G, "When the process started, in seconds since 1970",
         read.value(lambda scrape: scrape.sources.started_ms / 1000)),
    _row("process_cpu_seconds_total", C, "Time on a processor, in user and system mode", read.value(read.cpu_seconds)),
    _row("process_resident_memory_bytes", G, "Memory in RAM", read.value(read.resident_bytes)),
    _row("process_open_fds", G, "Open files and connections", read.value(read.open_files)),
    _row("process_max_fds", G, "Limit of open files and connections", read.value(read.max_files)),
)  # fmt: skip
