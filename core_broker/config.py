"""Every broker and topic option in one table: name, type, default, bounds, one line of doc.

Names and defaults are Kafka 4.4's unless the doc says otherwise; options that Kafka lacks are marked `own`. All of
Kafka's options are listed, so that DescribeConfigs answers as tools expect. Those marked `inert` change nothing here,
and those marked `refused` take their default only; the mark says why. A topic option that is not set takes the broker
option named in its row. Broker options marked `dynamic` can be changed while the broker runs, as in Kafka. Broker
options that are Kafka's alone are in `kafka_only.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from . import membership
from .kafka_only import KAFKA_OPTIONS, without_row
from .option import MAX_INT, MAX_LONG, ConfigError, Option, Type

CLEANER_BUFFER_LEAST = 1 << 20  # of a thread; it must have more
NEAR = 0.85  # of 1, the same: from there on a name is taken for a slip of another

_B, _S, _I, _SH, _L, _D, _LIST = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.SHORT,
    Type.LONG,
    Type.DOUBLE,
    Type.LIST,
)
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_DURABILITY = ("page_cache", "fsync")
_POLICIES = ("compact", "delete")
_TIERS = "there is no tiered storage"
_SHARE = "there are no share groups"
_ASSIGNORS = ("uniform", "range")
_REPLICA = "[0-9]+:[0-9]+|"
O = Option  # noqa: E741  the table below is read by columns

TOPIC_OPTIONS: tuple[Option, ...] = (
    O("cleanup.policy", _LIST, "delete", "What is done with old segments: delete, compact, both, or nothing",
      choices=_POLICIES, broker="log.cleanup.policy"),
    O("compression.type", _S, "producer", "Codec of the stored batches; `producer` keeps theirs", choices=_CODECS,
      broker="compression.type"),
    O("compression.gzip.level", _I, "-1", "Level of gzip", -1, 9, never=(0,), broker="compression.gzip.level"),
    O("compression.lz4.level", _I, "9", "Level of lz4", 1, 17, broker="compression.lz4.level"),
    O("compression.zstd.level", _I, "3", "Level of zstd", -131072, 22, broker="compression.zstd.level"),
    O("delete.retention.ms", _L, "86400000", "How long a compacted topic keeps its tombstones", 0,
      broker="log.cleaner.delete.retention.ms"),
    O("durability", _S, "page_cache", "When an append is done: in the page cache, or after a group-committed fsync",
      choices=_DURABILITY, broker="durability", own=True),
    O("errors.deadletterqueue.group.enable", _B, "false", "Dead letters of share groups", inert=_SHARE),
    O("file.delete.delay.ms", _L, "60000", "How long a deleted segment's file stays", 0,
      broker="log.segment.delete.delay.ms", inert="who reads a segment that is deleted keeps its file until the end"),
    O("flush.messages", _L, str(MAX_LONG), "Records between two fsyncs of a partition", 1,
      broker="log.flush.interval.messages"),
    O("flush.ms", _L, str(MAX_LONG), "Longest time that an append stays without fsync", 0,
      broker="log.flush.interval.ms"),
    O("follower.replication.throttled.replicas", _LIST, "", "Replicas whose fetching is throttled, as "
      "PARTITION:BROKER, or * for all", part=_REPLICA),
    O("index.interval.bytes", _I, "4096", "Bytes of log between two index entries", 0,
      broker="log.index.interval.bytes"),
    O("leader.replication.throttled.replicas", _LIST, "", "Replicas that are served to followers under a "
      "throttle, as PARTITION:BROKER, or * for all", part=_REPLICA),
    O("local.retention.bytes", _L, "-2", "Bytes kept locally under tiering", -2, broker="log.local.retention.bytes",
      inert=_TIERS),
    O("local.retention.ms", _L, "-2", "Time kept locally under tiering", -2, broker="log.local.retention.ms",
      inert=_TIERS),
    O("max.compaction.lag.ms", _L, str(MAX_LONG), "Longest time a record stays uncompacted", 1,
      broker="log.cleaner.max.compaction.lag.ms"),
    O("max.decompressed.message.bytes", _I, "2147483639", "Largest batch once decompressed", 1, 2147483639,
      broker="max.decompressed.message.bytes", inert="what is decompressed has a bound of its own"),
    O("max.message.bytes", _I, "1048588", "Largest batch, as it is on the wire", 0, broker="message.max.bytes"),
    O("message.timestamp.after.max.ms", _L, "3600000", "How far a record's timestamp may lie in the future", 0,
      broker="log.message.timestamp.after.max.ms"),
    O("message.timestamp.before.max.ms", _L, str(MAX_LONG), "How far a record's timestamp may lie in the past", 0,
      broker="log.message.timestamp.before.max.ms"),
    O("message.timestamp.type", _S, "CreateTime", "Whose clock stamps the records", choices=("CreateTime",
      "LogAppendTime"),
      broker="log.message.timestamp.type"),
    O("min.cleanable.dirty.ratio", _D, "0.5", "Dirty part of a log at which it is cleaned", 0, 1,
      broker="log.cleaner.min.cleanable.ratio"),
    O("min.compaction.lag.ms", _L, "0", "Shortest time a record stays uncompacted", 0,
      broker="log.cleaner.min.compaction.lag.ms"),
    O("min.insync.replicas", _I, "1", "Replicas that must be in sync for acks=all", 1, broker="min.insync.replicas"),
    O("mirror.link", _S, "", "The link that owns this topic: clients may not produce to it", own=True, sealed=True),
    O("mirror.source.cluster.id", _S, "", "The cluster this topic is mirrored from", own=True, sealed=True),
    O("mirror.source.path", _S, "", "The clusters this topic's records came through, the first they were produced in",
      own=True, sealed=True),
    O("mirror.source.topic.id", _S, "", "The topic this one is mirrored from", own=True, sealed=True),
    O("preallocate", _B, "false", "Reserve a segment's file at its creation", broker="log.preallocate",
      inert="files grow as they are written"),
    O("remote.copy.lag.bytes", _L, "-1", "How far uploads may be behind, in bytes", -1,
      broker="log.remote.copy.lag.bytes", inert=_TIERS),
    O("remote.copy.lag.ms", _L, "0", "How far uploads may be behind, in time", -1, broker="log.remote.copy.lag.ms",
      inert=_TIERS),
    O("remote.log.copy.disable", _B, "false", "No more uploads", inert=_TIERS),
    O("remote.log.delete.on.disable", _B, "false", "Delete what was uploaded once tiering ends", inert=_TIERS),
    O("remote.storage.enable", _B, "false", "Tiering", refused=_TIERS),
    O("retention.bytes", _L, "-1", "Bytes a partition keeps; -1 for no limit", broker="log.retention.bytes"),
    O("retention.ms", _L, "604800000", "Time a partition keeps, by record timestamps; -1 for no limit", -1,
      broker="log.retention.ms"),
    O("segment.bytes", _I, "1073741824", "Size at which a segment is closed", 1024 * 1024, broker="log.segment.bytes"),
    O("segment.index.bytes", _I, "10485760", "Largest index of a segment", 4, broker="log.index.size.max.bytes"),
    O("segment.jitter.ms", _L, "0", "Random part of segment.ms", 0, broker="log.roll.jitter.ms"),
    O("segment.ms", _L, "604800000", "Age at which a segment is closed", 1, broker="log.roll.ms"),
    O("unclean.leader.election.enable", _B, "false", "Let a replica that is not in sync lead",
      broker="unclean.leader.election.enable"),
)  # fmt: skip

# Broker options that are a topic option's default and are written in another unit, or are not set by default: the
# first that is set counts.
TIME_FALLBACKS: dict[str, tuple[tuple[str, int], ...]] = {
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
}

_OWN_BROKER_OPTIONS: tuple[Option, ...] = (
    O("add.partitions.to.txn.retry.backoff.max.ms", _I, "100", "How long a transaction's coordinator that "
      "still ends the one before it is asked again, before the producer is told", 0),
    O("add.partitions.to.txn.retry.backoff.ms", _I, "20", "The time between two of these questions", 1),
    O("advertised.listeners", _LIST, None,
      "Addresses given to clients, by listener name; the listeners' own if not set"),
    O("auto.create.topics.enable", _B, "true", "A Metadata request creates the topics it names"),
    O("auto.leader.rebalance.enable", _B, "true", "The controller gives partitions back to their preferred leaders"),
    O("broker.heartbeat.interval.ms", _I, "1000", "How often a broker tells the controller that it lives"),
    O("broker.id", _I, "-1", "Another name of node.id, which counts where that is not given"),
    O("broker.lost.connection.timeout.ms", _I, "300", "How long the controller waits for a heartbeat of a broker whose "
      "connection is closed, if the broker's machine does not refuse connections to it: then it is gone", 1, own=True),
    O("broker.rack", _S, None, "The rack this broker stands in. Where it is not set, and machines have several "
      "brokers, new replicas go to different machines first"),
    O("broker.session.timeout.ms", _I, "4000", "A broker that was not heard of for so long is fenced: "
      "for so long, and an election, its partitions stand still when it hangs"),
    O("cluster.id", _S, None, "The cluster's id: a new directory takes it, any other must have it. Needed where there "
      "are several nodes, so that all have the same", own=True),
    O("cold.read.threads", _I, "4", "Threads for reads of what the page cache does not have", 1, 64, own=True),
    O("compression.queued.bytes", _L, "268435456", "Most bytes of batches that wait to be compressed anew or looked "
      "into; more are refused as REQUEST_TIMED_OUT, to be sent again", 1024 * 1024, own=True),
    O("compression.threads", _I, "2", "Threads for batches that are compressed anew or looked into", 1, 64, own=True),
    O("connections.max.idle.ms", _L, "600000", "A connection without a whole request for so long is closed", 1),
    O("controller.listener.names", _LIST, None, "Which listeners are for controllers; nodes reach each other's "
      "controllers by the first. None where a node is alone"),
    O("controller.quorum.auto.join.enable", _B, "false", "A controller that is no voter asks to be one"),
    O("controller.quorum.bootstrap.servers", _LIST, "", "HOST:PORT of controllers, of which voters are found that "
      "controller.quorum.voters does not name"),
    O("controller.quorum.election.backoff.max.ms", _I, "1000", "Longest pause after an election without a result", 0),
    O("controller.quorum.election.timeout.ms", _I, "1000", "How long a voter waits for a leader before it wants to "
      "become one", 0),
    O("controller.quorum.fetch.max.bytes", _I, "1048576", "Most bytes of the metadata log in one answer", 1),
    O("controller.quorum.fetch.snapshot.max.bytes", _I, "1048576", "Most bytes of a metadata snapshot in one answer",
      1),
    O("controller.quorum.fetch.timeout.ms", _I, "2000", "A leader of the quorum that does not answer for so long is "
      "given up, and so is one from which no majority fetches", 0),
    O("controller.quorum.initial.controllers", _LIST, "", "ID@HOST:PORT:DIRECTORY_ID of each first voter of a new "
      "cluster, as `kafka-storage format --initial-controllers` has them. Their new directories take these ids; where "
      "there is metadata, nothing comes of it", own=True),
    O("controller.quorum.request.timeout.ms", _I, "2000", "How long a member of the quorum waits for another's answer",
      0),
    O("controller.quorum.retry.backoff.ms", _I, "20", "Pause before such a request is sent again", 0),
    O("controller.quorum.voters", _LIST, "", "ID@HOST:PORT of each controller that votes, as all nodes have them; this "
      "node alone if none is named here nor in controller.quorum.bootstrap.servers"),
    O("controller.socket.timeout.ms", _I, "30000", "How long a broker waits for an answer of the controller"),
    O("cordoned.log.dirs", _LIST, "", "Directories of logs that are given no new partitions, or * for all",
      dynamic=True),
    O("default.replication.factor", _I, "1", "Replicas of a topic that does not say", 1),
    O("delete.topic.enable", _B, "true", "Whether topics can be deleted"),
    O("fetch.max.bytes", _I, "57671680", "Most bytes in one Fetch answer", 1024),
    O("file.pool.threads", _I, "4", "Threads for what may wait for the disk", 1, 64, own=True),
    O("follower.replication.throttled.rate", _L, None, "Bytes/s at which this broker fetches throttled replicas that "
      "are not in sync; no limit if not set", 0, dynamic=True, unseen=True),
    O("group.consumer.assignment.interval.ms", _I, "1000", "Shortest time between two assignments of a consumer "
      "group", 0, dynamic=True),
    O("group.consumer.assignors", _LIST, "uniform,range", "Assignors of consumer groups; the first is the default",
      choices=_ASSIGNORS),
    O("group.consumer.heartbeat.interval.ms", _I, "5000", "How often members of consumer groups send heartbeats", 1),
    O("group.consumer.max.assignment.interval.ms", _I, "15000", "Longest that a group's own interval may be", 0),
    O("group.consumer.max.heartbeat.interval.ms", _I, "15000", "Longest that a group's own interval may be", 1),
    O("group.consumer.max.session.timeout.ms", _I, "60000", "Longest that a group's own timeout may be", 1),
    O("group.consumer.max.size", _I, str(MAX_INT), "Most members of one consumer group", 1),
    O("group.consumer.migration.policy", _S, "bidirectional", "Whether groups in use may change from the classic "
      "protocol to that of consumer groups (upgrade), back (downgrade), both, or neither",
      choices=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True),
    O("group.consumer.min.assignment.interval.ms", _I, "0", "Shortest that a group's own interval may be", 0),
    O("group.consumer.min.heartbeat.interval.ms", _I, "5000", "Shortest that a group's own interval may be", 1),
    O("group.consumer.min.session.timeout.ms", _I, "45000", "Shortest that a group's own timeout may be", 1),
    O("group.consumer.session.timeout.ms", _I, "45000", "How long a member of a consumer group may be silent", 1),
    O("group.coordinator.rebalance.protocols", _LIST, "classic,consumer,streams", "Protocols that groups may speak; "
      "there are no share groups and no streams groups", choices=("consumer", "classic", "share", "streams")),
    O("group.initial.rebalance.delay.ms", _I, "3000", "How long a new group waits for more members", 0),
    O("group.max.session.timeout.ms", _I, "1800000", "Longest session timeout of a member", 1),
    O("group.max.size", _I, str(MAX_INT), "Most members of one group", 1),
    O("group.min.session.timeout.ms", _I, "6000", "Shortest session timeout of a member", 1),
    O("initial.broker.registration.timeout.ms", _I, "60000", "How long a broker that starts may need until the "
      "controller has registered it"),
    O("inter.broker.listener.name", _S, None, "By which listener other brokers reach this one; PLAINTEXT if not set, "
      "or the first"),
    O("leader.imbalance.check.interval.seconds", _L, "300", "How often the controller looks for leaders that are not "
      "the preferred ones", 1),
    O("leader.replication.throttled.rate", _L, None, "Bytes/s at which this broker serves throttled replicas to "
      "followers that are not in sync; no limit if not set", 0, dynamic=True, unseen=True),
    O("listener.security.protocol.map", _S,
      "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
      "Protocol of each listener; only PLAINTEXT works yet"),
    O("listeners", _LIST, "PLAINTEXT://:9092", "NAME://HOST:PORT for each socket to listen on"),
    O("log.cleaner.backoff.ms", _L, "15000", "How long the cleaner rests when no log needs it", 0, dynamic=True),
    O("log.cleaner.dedupe.buffer.size", _L, "134217728", "Memory for keys and their last offsets, 24 bytes each, of "
      "all logs that are compacted at a time; a log with more keys takes several rounds", dynamic=True),
    O("log.cleaner.io.buffer.load.factor", _D, "0.9", "How full that memory may get", 0, dynamic=True),
    O("log.cleaner.io.buffer.size", _I, "524288", "Bytes that are read at once, of all logs that are compacted at a "
      "time; a larger batch is read alone", 0, dynamic=True),
    O("log.cleaner.io.max.bytes.per.second", _D, "1.7976931348623157E308", "Speed of compaction, bytes read and "
      "written together", dynamic=True),
    O("log.cleaner.threads", _I, "1", "Logs that are compacted at a time", 0, dynamic=True),
    O("log.dir", _LIST, None, "Another name of log.dirs, which counts where that is not given"),
    O("log.dirs", _LIST, "/tmp/isthmus-logs", "The data directory; exactly one"),
    O("log.flush.offset.checkpoint.interval.ms", _I, "60000", "How often recovery points are saved", 1),
    O("log.flush.scheduler.interval.ms", _L, str(MAX_LONG), "flush.ms where log.flush.interval.ms is not set", 1),
    O("log.flush.start.offset.checkpoint.interval.ms", _I, "60000", "How often log start offsets are saved", 1),
    O("log.format", _S, "text", "What the broker's own log is written as: lines for people, or a JSON object a line",
      choices=("text", "json"), own=True),
    O("log.retention.check.interval.ms", _L, "300000", "How often old segments are looked for", 1),
    O("log.retention.hours", _I, "168", "retention.ms, in hours", never=(0,)),
    O("log.retention.minutes", _I, None, "retention.ms, in minutes", never=(0,)),
    O("log.retention.ms", _L, None, "retention.ms of topics that do not set it; below 0 for no limit", never=(0,),
      dynamic=True),
    O("log.roll.hours", _I, "168", "segment.ms, in hours", 1),
    O("log.roll.jitter.hours", _I, "0", "segment.jitter.ms, in hours", 0),
    O("log.segment.delete.delay.ms", _L, "60000", "How long the files of a deleted topic stay; a segment that is "
      "deleted goes at once, and who reads it keeps its file until the end", 0, dynamic=True),
    O("max.connections", _I, "40000", "Most connections at a time (Kafka: no limit)", 1, dynamic=True),
    O("max.incremental.fetch.session.cache.slots", _I, "1000", "Most fetch sessions (KIP-227)", 0),
    O("max.incremental.fetch.session.partitions", _I, "500000", "Most partitions in all fetch sessions "
      "together; past it clients fetch without", 0, own=True),
    O("max.open.log.files", _I, "10000", "Most segment files that are held open; past it the one not used for longest "
      "is closed, and opened again when it is needed. A seventh of what `ulimit -n` allows, if that is less",
      8, own=True),
    O("max.pending.requests", _I, "20000", "Most requests that wait for an event; more are answered at once", 1,
      own=True),
    O("max.request.partition.size.limit", _I, "2000", "Most partitions in one DescribeTopicPartitions answer", 1),
    O("metadata.log.max.record.bytes.between.snapshots", _L, "20971520", "Bytes of metadata records after which a "
      "snapshot of the cluster's state takes the place of the log before it", 1),
    O("metadata.log.max.snapshot.interval.ms", _L, "3600000", "The same by the time since the last snapshot, if there "
      "were any records; 0 for never", 0),
    O("metrics.listener", _S, None, "HOST:PORT that tells Prometheus' metrics and the broker's health over HTTP; none "
      "if not set", own=True),
    O("node.id", _I, "1", "This broker's id (Kafka: no default)", 0),
    O("num.partitions", _I, "1", "Partitions of a topic that does not say", 1),
    O("offset.metadata.max.bytes", _I, "4096", "Longest text kept with a committed offset", 0),
    O("offsets.commit.timeout.ms", _I, "5000", "How long an offset commit may wait for its replicas", 1),
    O("offsets.retention.check.interval.ms", _L, "600000", "How often old offsets are looked for", 1),
    O("offsets.retention.minutes", _I, "10080", "How long an empty group keeps its offsets", 1),
    O("offsets.topic.num.partitions", _I, "10", "Partitions of __consumer_offsets (Kafka: 50)", 1),
    O("offsets.topic.replication.factor", _SH, "3", "Replicas of __consumer_offsets; if this is not set, there are no "
      "more than brokers (Kafka: it is not created)", 1),
    O("offsets.topic.segment.bytes", _I, "104857600", "segment.bytes of __consumer_offsets", 1024 * 1024),
    O("process.roles", _LIST, "broker,controller", "What this node is: broker, controller, or both (Kafka: no default)",
      choices=("broker", "controller")),
    O("producer.id.expiration.ms", _I, "86400000", "How long an idle producer's sequences are remembered", 1,
      dynamic=True),
    O("queued.max.request.bytes", _L, "536870912", "Memory for requests being read; past it no more is read "
      "(Kafka: no limit)", 1024 * 1024),
    O("replica.fetch.backoff.ms", _I, "1000", "Pause of a follower after its leader could not answer", 0),
    O("replica.fetch.max.bytes", _I, "1048576", "Most bytes that a follower asks of one partition; a larger batch "
      "comes all the same", 0),
    O("replica.fetch.min.bytes", _I, "1", "Bytes for which a leader lets a follower wait"),
    O("replica.fetch.response.max.bytes", _I, "10485760", "Most bytes that a follower asks for at once", 0),
    O("replica.fetch.wait.max.ms", _I, "500", "How long it lets its leader wait for them"),
    O("replica.high.watermark.checkpoint.interval.ms", _L, "5000", "How often high watermarks are saved", 1),
    O("replica.lag.time.max.ms", _L, "30000", "A follower that did not reach its leader's end for so long is not in "
      "sync any more"),
    O("replica.selector.class", _S, None, "How a leader names a replica for a consumer to read from: one in its rack "
      "(KIP-392), or none", choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector",)),
    O("replica.socket.timeout.ms", _I, "30000", "How long a follower waits for its leader's answer"),
    O("replication.quota.window.num", _I, "11", "Samples over which throttled replication is measured", 1),
    O("replication.quota.window.size.seconds", _I, "1", "Length of a sample", 1),
    O("request.timeout.ms", _I, "30000", "How long a metadata change may take", 1),
    O("send.turn.bytes", _I, "4194304", "Most file bytes given to one socket in one turn of the loop", 65536, own=True),
    O("shutdown.timeout.ms", _I, "60000", "How long a controlled stop may take; past it the process ends, and the next "
      "start recovers its logs", 1, own=True),
    O("socket.listen.backlog.size", _I, "512", "Connections waiting to be accepted (Kafka: 50)", 1),
    O("socket.request.max.bytes", _I, "104857600", "Longest request", 1),
    O("socket.send.buffer.bytes", _I, "-1", "What a connection's socket buffers of answers; -1 leaves it to the "
      "system, which lets it grow with the line (Kafka: 102400)", -1),
    O("transaction.abort.timed.out.transaction.cleanup.interval.ms", _I, "10000", "How often transactions are looked "
      "for that have lasted longer than their producers allowed", 1),
    O("transaction.max.timeout.ms", _I, "900000", "The longest timeout that a transaction may have", 1),
    O("transaction.partition.verification.enable", _B, "true", "Producers of Produce 11 and before write to partitions "
      "only after the transaction's coordinator says that they belong to it", dynamic=True),
    O("transaction.remove.expired.transaction.cleanup.interval.ms", _I, "3600000", "How often transactional ids are "
      "looked for that were not used for long", 1),
    O("transaction.state.log.min.isr", _I, "2", "min.insync.replicas of __transaction_state", 1),
    O("transaction.state.log.num.partitions", _I, "10", "Partitions of __transaction_state (Kafka: 50)", 1),
    O("transaction.state.log.replication.factor", _SH, "3", "Replicas of __transaction_state; if this is not set, "
      "there are no more than brokers (Kafka: it is not created)", 1),
    O("transaction.state.log.segment.bytes", _I, "104857600", "segment.bytes of __transaction_state", 1024 * 1024),
    O("transactional.id.expiration.ms", _I, "604800000", "How long a transactional id without a transaction is "
      "remembered", 1),
)  # fmt: skip


OTHER_NAMES = {"node.id": "broker.id", "log.dirs": "log.dir"}  # that count where the option itself is not given
_FIXED_HERE = ("listeners", "listener.security.protocol.map")  # which Kafka can change while a broker runs


def _broker_table() -> tuple[Option, ...]:
    """The rows above, and for each topic option the broker option that gives its default."""
    rows = {option.name: option for option in _OWN_BROKER_OPTIONS}
    for topic in TOPIC_OPTIONS:
        if topic.broker is None or topic.broker in rows:
            continue
        default = None if topic.name in TIME_FALLBACKS else topic.default
        rows[topic.broker] = Option(
            topic.broker, topic.type, default, f"{topic.name} of topics that do not set it. {topic.doc}",
            topic.low, topic.high, topic.choices, never=topic.never, inert=topic.inert, own=topic.own, dynamic=True,
        )  # fmt: skip
    return tuple(rows[name] for name in sorted(rows))


OUR_BROKER_OPTIONS: tuple[Option, ...] = _broker_table()
BROKER_OPTIONS = tuple(sorted((*OUR_BROKER_OPTIONS, *KAFKA_OPTIONS), key=lambda option: option.name))
_BROKER = {option.name: option for option in BROKER_OPTIONS}
_TOPIC = {option.name: option for option in TOPIC_OPTIONS}


class BrokerConfig(Mapping[str, Any]):
    """A broker's options as parsed values: `config["num.partitions"]`.

    given: the options as text; what is missing takes its default. ConfigError for a wrong name or value. Those that are
    dynamic may be set over them while the broker runs, for all brokers or for this one.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given = dict(given or {})
        self.of_all_brokers: dict[str, str] = {}
        self.of_this_broker: dict[str, str] = {}
        for name, text in self.given.items():
            _row(name).check(text)
        self._values: dict[str, Any] = {}
        self._parse()
        check_cordoned(self["cordoned.log.dirs"], self)
        self._check_together()
        membership.check(self)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def set_dynamic(self, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]) -> list[KafkaError]:
        """Take the options that were set while brokers run. What cannot be is left out and given back."""
        wrong: list[KafkaError] = []
        self.of_all_brokers = _sound(of_all_brokers, wrong)
        self.of_this_broker = _sound(of_this_broker, wrong)
        self._parse()
        return wrong

    def _check_together(self) -> None:
        """ConfigError for what cannot be together. As in Kafka, options that were set later are not looked at."""
        lags = self["log.cleaner.min.compaction.lag.ms"], self["log.cleaner.max.compaction.lag.ms"]
        if lags[0] > lags[1]:
            raise ConfigError(
                "log.cleaner.min.compaction.lag.ms={} is more than max.compaction.lag.ms={}".format(*lags)
            )
        size, threads = self["log.cleaner.dedupe.buffer.size"], self["log.cleaner.threads"]
        if size // max(threads, 1) <= CLEANER_BUFFER_LEAST:
            raise _BROKER["log.cleaner.dedupe.buffer.size"].invalid(
                str(size), f"Value must be more than 1 MiB for each of log.cleaner.threads={threads}"
            )

        self._check_consumer_groups()

    def _check_consumer_groups(self) -> None:
        """ConfigError for options of consumer groups that contradict each other, in Kafka's words."""
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
            low, value, high = f"group.consumer.min.{name}", f"group.consumer.{name}", f"group.consumer.max.{name}"
            self._check_order(high, low)
            self._check_order(value, low)
            if self[value] > self[high]:
                raise ConfigError(f"{value} must be less than or equal to {high}")
        interval, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
        if self[interval] >= self[session]:
            raise ConfigError(f"{interval} must be less than {session}")
        if not self["group.consumer.assignors"]:
            raise ConfigError("group.consumer.assignors must name one at least")

    def _check_order(self, more: str, less: str) -> None:
        if self[more] < self[less]:
            raise ConfigError(f"{more} must be greater than or equal to {less}")

    def _parse(self) -> None:
        for option in BROKER_OPTIONS:
            text = self.given.get(OTHER_NAMES.get(option.name, ""), option.default)
            for level in (self.of_this_broker, self.of_all_brokers, self.given):
                if option.name in level:
                    text = level[option.name]
                    break
            self._values[option.name] = None if text is None else option.parse(text)


def _row(name: str) -> Option:
    """The row of a broker option; ConfigError says what to write instead of a name that no option has."""
    option = _BROKER.get(name) or without_row(name)
    if option is None:
        way_out = meant(name) or "docs/reference/configuration.md lists those there are"
        raise ConfigError(f"unknown option {name}: {way_out}")
    return option


def without_effect(options: Iterable[Option], given: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, value and reason of each option that was given and changes nothing here. options: the table of them."""
    rows = {option.name: option for option in options}
    found = ((name, text, rows.get(name) or without_row(name)) for name, text in sorted(given.items()))
    return [(name, text, option.inert) for name, text, option in found if option is not None and option.inert]


def is_known(name: str) -> bool:
    """Whether a broker option has this name, or had it in an earlier version of Kafka."""
    return name in _BROKER or without_row(name) is not None


def meant(name: str) -> str:
    """What may be meant by a name that no broker option has; empty where nothing is near."""
    topic = _TOPIC.get(name)
    if topic is not None:
        return f"topics have it; {topic.broker} is its default" if topic.broker else "topics have it, each its own"
    near = difflib.get_close_matches(name, [option.name for option in OUR_BROKER_OPTIONS], 1, NEAR)
    return f"did you mean {near[0]}?" if near else ""


def _sound(options: Mapping[str, str], wrong: list[KafkaError]) -> dict[str, str]:
    sound = {}
    for name, text in options.items():
        try:
            validate_broker_options({name: text})
        except KafkaError as error:
            wrong.append(error)
        else:
            sound[name] = text
    return sound


def topic_value(option: Option, overrides: Mapping[str, str], config: BrokerConfig) -> Any:
    """The parsed value of one topic option: the topic's own, else the broker's."""
    text = overrides.get(option.name)
    if text is not None:
        return option.parse(text)
    for name, factor in TIME_FALLBACKS.get(option.name, ()):
        if config[name] is not None:
            return min(config[name] * factor, MAX_LONG) if config[name] >= 0 else -1
    if option.broker is not None and config[option.broker] is not None:
        return config[option.broker]
    return None if option.default is None else option.parse(option.default)


def topic_config(overrides: Mapping[str, str], config: BrokerConfig) -> dict[str, Any]:
    """The parsed values of all topic options."""
    return {option.name: topic_value(option, overrides, config) for option in TOPIC_OPTIONS}


def topic_option(name: str) -> Option:
    """The row of a topic option; ConfigError when there is none."""
    option = _TOPIC.get(name)
    if option is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return option


def broker_option(name: str) -> Option:
    """The row of a broker option; ConfigError when there is none."""
    option = _BROKER.get(name)
    if option is None:
        raise ConfigError(f"Unknown broker option: {name}")
    return option


def validate_topic_options(
    overrides: Mapping[str, str | None] | Iterable[tuple[str, str | None]], config: BrokerConfig | None = None
) -> None:
    """ConfigError when a topic cannot have these options. config: what it takes the others from, where that counts."""
    values: dict[str, Any] = {}
    for name, text in dict(overrides).items():
        option = topic_option(name)
        if text is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        values[name] = option.check(text)
    lags = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    if config is not None and any(name in values for name in lags):
        values = {name: config[topic_option(name).broker or ""] for name in lags} | values
    minimum, maximum = (values.get(name) for name in lags)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})"
        )


def certain_session_ms(config: Mapping[str, Any]) -> int:
    """How long a broker that was not fenced by the answer to a heartbeat can be certain, from when it sent that, that
    no controller has fenced it. Its own controller does so after broker.session.timeout.ms at the soonest. A newer one
    waits for this time; and while others give the old one up, for controller.quorum.fetch.timeout.ms, that one is
    silent before they are done, see `MetadataQuorum.is_confirmed`.
    """
    certain: int = min(config["broker.session.timeout.ms"], config["controller.quorum.fetch.timeout.ms"])
    return certain


def check_cordoned(directories: Iterable[str], config: Mapping[str, Any]) -> None:
    """ConfigError unless these are directories of this broker's logs, or * alone (KIP-1066)."""
    if "*" in directories and tuple(directories) != ("*",):
        raise ConfigError("When cordoned.log.dirs is set to *, it must not contain other values")
    missing = [each for each in directories if each not in (*config["log.dirs"], "*")]
    if missing:
        raise ConfigError(
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
            + ", ".join(missing)
        )


def validate_broker_options(options: Mapping[str, str]) -> None:
    """KafkaError when these options cannot be set while a broker runs.

    What Kafka refuses too is INVALID_REQUEST, as it is there (KAFKA-13609); what it would take, and what cannot be
    honoured here, is INVALID_CONFIG.
    """
    fixed = [name for name in options if name in _BROKER and not _BROKER[name].dynamic and name not in _FIXED_HERE]
    if fixed:
        names = ", ".join(sorted(fixed))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {names}")
    for name, text in options.items():
        option = broker_option(name)
        if name in _FIXED_HERE:
            raise option.invalid(text, "it cannot be changed here while a broker runs: sockets are opened at its start")
        try:
            option.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        option.check(text)
