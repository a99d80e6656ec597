"""Kafka's broker options that this broker does not have: what holds here instead, for whoever sets one.

Patterns are those of the shell; the first that fits counts. That each of Kafka 4.4's options is either in our table
(`config.py`) or here, an integration test asks of Kafka itself.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_LOOP = "one loop serves all connections; cold.read.threads, compression.threads and file.pool.threads work beside it"
_ONE_NODE = "a cluster has one broker yet, which is its own controller"
_NO_REPLICAS = "partitions have no other replicas yet"
_NO_SECURITY = "listeners are PLAINTEXT: there is no TLS, SASL or ACL yet"
_NO_TRANSACTIONS = "there are no transactions yet"
_NO_NEW_GROUPS = "groups are of the classic protocol; there are no share groups"
_NO_QUOTAS = "there are no quotas yet"
_NO_CLASSES = "no class of Java's can be loaded"
_METRICS = "metrics.listener serves all metrics, for Prometheus"
_METADATA_LOG = (
    "snapshots cut the metadata log: metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot."
    "interval.ms say when"
)

INSTEAD: tuple[tuple[str, str], ...] = (
    # Threads and requests
    ("num.network.threads", _LOOP),
    ("num.io.threads", _LOOP),
    ("background.threads", _LOOP),
    ("num.recovery.threads.per.data.dir", "file.pool.threads open the logs"),
    ("queued.max.requests", "a connection has one request at work; queued.max.request.bytes bounds those being read"),
    ("*.purgatory.purge.interval.requests", "max.pending.requests bounds what waits"),
    ("controlled.shutdown.*", "each stop by a signal is a controlled one, and shutdown.timeout.ms bounds it"),
    # Connections
    ("socket.receive.buffer.bytes", "the system chooses the buffer"),
    ("max.connections.per.ip*", "max.connections bounds all connections"),
    ("max.connection.creation.rate", "max.connections bounds all connections"),
    ("early.start.listeners", "all listeners answer once the broker serves"),
    ("inter.broker.*", _ONE_NODE),
    ("security.inter.broker.protocol", _ONE_NODE),
    ("socket.connection.setup.*", _ONE_NODE),
    # The cluster
    ("broker.id*", "it is called node.id"),
    ("reserved.broker.max.id", "it is called node.id"),
    ("process.roles", _ONE_NODE),
    ("broker.heartbeat.interval.ms", _ONE_NODE),
    ("broker.session.timeout.ms", _ONE_NODE),
    ("initial.broker.registration.timeout.ms", _ONE_NODE),
    ("controller.quota.*", _NO_QUOTAS),
    ("controller.*", _ONE_NODE),
    ("zookeeper.*", "there is no ZooKeeper"),
    ("metadata.log.dir", "the metadata log lies in log.dirs"),
    ("metadata.log.segment.*", _METADATA_LOG),
    ("metadata.max.retention.*", _METADATA_LOG),
    ("metadata.max.idle.interval.ms", "nothing is written while nothing changes"),
    # Logs
    ("log.dir", "it is called log.dirs"),
    ("cordoned.log.dirs", "there is one directory of logs"),
    ("log.dir.failure.timeout.ms", "a disk error takes its own partition offline, and no other"),
    ("log.cleaner.enable", "topics with cleanup.policy=compact are always compacted"),
    ("log.message.format.version", "batches are of version 2"),
    ("log.message.downconversion.enable", "batches are of version 2"),
    ("remote.*", "there is no tiered storage"),
    # Replicas
    ("auto.leader.rebalance.enable", _NO_REPLICAS),
    ("leader.imbalance.*", _NO_REPLICAS),
    ("num.replica.*", _NO_REPLICAS),
    ("replica.fetch.*", _NO_REPLICAS),
    ("replica.lag.*", _NO_REPLICAS),
    ("replica.selector.class", _NO_REPLICAS),
    ("replica.socket.*", _NO_REPLICAS),
    ("follower.fetch.*", _NO_REPLICAS),
    # Groups and transactions
    ("group.consumer.*", _NO_NEW_GROUPS),
    ("group.coordinator.*", _NO_NEW_GROUPS),
    ("group.share.*", _NO_NEW_GROUPS),
    ("group.streams.*", _NO_NEW_GROUPS),
    ("share.coordinator.*", _NO_NEW_GROUPS),
    ("errors.deadletterqueue.*", _NO_NEW_GROUPS),
    ("offsets.load.buffer.size", "a group's records are read in pieces of one size"),
    ("offsets.topic.compression.codec", "a group's records are not compressed"),
    ("transaction.*", _NO_TRANSACTIONS),
    ("transactional.*", _NO_TRANSACTIONS),
    ("add.partitions.to.txn.*", _NO_TRANSACTIONS),
    # Security and limits
    ("sasl.*", _NO_SECURITY),
    ("ssl.*", _NO_SECURITY),
    ("listener.name.*", _NO_SECURITY),
    ("security.providers", _NO_SECURITY),
    ("authorizer.*", _NO_SECURITY),
    ("principal.builder.*", _NO_SECURITY),
    ("super.users", _NO_SECURITY),
    ("allow.everyone.if.no.acl.found", _NO_SECURITY),
    ("delegation.token.*", _NO_SECURITY),
    ("password.encoder.*", _NO_SECURITY),
    ("connections.max.reauth.ms", _NO_SECURITY),
    ("connection.failed.authentication.delay.ms", _NO_SECURITY),
    ("*quota*", _NO_QUOTAS),
    # The rest
    ("metric.reporters", _METRICS),
    ("metrics.num.samples", _METRICS),
    ("metrics.recording.level", _METRICS),
    ("metrics.sample.window.ms", _METRICS),
    ("kafka.metrics.*", _METRICS),
    ("auto.include.jmx.reporter", _METRICS),
    ("telemetry.*", "clients' telemetry is not collected"),
    ("*.policy.class.name", _NO_CLASSES),
    ("config.providers*", _NO_CLASSES),
)


def instead(name: str) -> str | None:
    """What holds here in place of an option of Kafka's; None for one that we have, and one that Kafka lacks, too."""
    return next((held for pattern, held in INSTEAD if fnmatchcase(name, pattern)), None)
