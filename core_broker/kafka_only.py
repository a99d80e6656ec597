"""Kafka's broker options that this broker does not have: their types, defaults and bounds, and what holds here instead.

`KAFKA_OPTIONS` has each that Kafka 4.4 describes and that is not in our own table (`config.py`); an integration test
asks Kafka itself. They are taken, kept and described as Kafka does. What each means here is one line of `INSTEAD`,
whose patterns are those of the shell; the first that fits counts. An option that a line of `REFUSED` fits takes its
default only: somebody relies on what it would do, and to ignore it would break that promise.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from .option import Option, Type

_B, _S, _I, _SH, _L, _D, _LIST, _CLASS, _PASSWORD = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.SHORT,
    Type.LONG,
    Type.DOUBLE,
    Type.LIST,
    Type.CLASS,
    Type.PASSWORD,
)

_LOOP = "one loop serves all connections; cold.read.threads, compression.threads and file.pool.threads work beside it"
_NO_SECURITY = "listeners are PLAINTEXT: there is no TLS, SASL or ACL"
_NO_NEW_GROUPS = "groups are of consumers; there are no share groups and no streams groups"
_NO_QUOTAS = "there are no quotas"
_NO_CLASSES = "no Java class can be loaded"
_NO_TIERS = "there is no tiered storage"
_NO_ZOOKEEPER = "there is no ZooKeeper"
_ONE_DIRECTORY = "there is one directory of logs"
_BUFFER = "the system chooses the buffer"
_ALL_CONNECTIONS = "max.connections bounds all connections together, and nothing bounds those of one address"
_METRICS = "metrics.listener serves all metrics, for Prometheus"
_VERSION_2 = "batches are of version 2"
_METADATA_LOG = (
    "snapshots cut the metadata log: metadata.log.max.record.bytes.between.snapshots and metadata.log.max.snapshot."
    "interval.ms say when"
)

REFUSED: tuple[tuple[str, str], ...] = (
    # Security
    ("allow.everyone.if.no.acl.found", _NO_SECURITY),
    ("authorizer.*", _NO_SECURITY),
    ("connections.max.reauth.ms", _NO_SECURITY),
    ("delegation.token.secret.key", _NO_SECURITY),
    ("listener.name.*", "listeners have no options of their own, and no TLS or SASL"),
    ("principal.builder.class", _NO_SECURITY),
    ("sasl.*", _NO_SECURITY),
    ("security.inter.broker.protocol", _NO_SECURITY),
    ("security.providers", _NO_SECURITY),
    ("ssl.*", _NO_SECURITY),
    ("super.users", _NO_SECURITY),
    # Limits and policies
    ("*.policy.class.name", _NO_CLASSES),
    ("client.quota.callback.class", _NO_CLASSES),
    ("config.providers*", "values are taken as they stand: no class can be loaded that would replace them"),
    ("max.connection.creation.rate", _ALL_CONNECTIONS),
    ("max.connections.per.ip*", _ALL_CONNECTIONS),
    # Data
    ("log.cleaner.enable", "topics with cleanup.policy=compact are always compacted"),
    ("remote.log.storage.system.enable", _NO_TIERS),
    ("transaction.two.phase.commit.enable", "no transaction takes part in a two-phase commit"),
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
    ("socket.receive.buffer.bytes", _BUFFER),
    ("early.start.listeners", "all listeners answer once the broker serves"),
    ("inter.broker.protocol.version", "brokers agree on metadata.version"),
    ("socket.connection.setup.*", "connections to other nodes have bounds of their own"),
    ("connection.failed.authentication.delay.ms", "nobody authenticates"),
    # The cluster
    ("broker.id.generation.enable", "node.id is given, or 1"),
    ("reserved.broker.max.id", "node.id is given, or 1"),
    ("controller.quota.*", _NO_QUOTAS),
    ("controller.performance.*", _METRICS),
    ("controller.quorum.append.linger.ms", "what a controller decides is written at once"),
    ("zookeeper.*", _NO_ZOOKEEPER),
    ("metadata.log.dir", "the metadata log is in log.dirs"),
    ("metadata.log.segment.*", _METADATA_LOG),
    ("metadata.max.retention.*", _METADATA_LOG),
    ("metadata.max.idle.interval.ms", "nothing is written while nothing changes"),
    # Logs
    ("log.dir.failure.timeout.ms", "a disk error takes its own partition offline, and no other"),
    ("log.message.format.version", _VERSION_2),
    ("log.message.downconversion.enable", _VERSION_2),
    ("remote.*", _NO_TIERS),
    # Replicas
    ("leader.imbalance.per.broker.percentage", "leaders are balanced as soon as one is not the preferred one"),
    ("num.replica.fetchers", "one connection to a leader carries all partitions that are followed there"),
    ("num.replica.alter.log.dirs.threads", _ONE_DIRECTORY),
    ("alter.log.dirs.replication.quota.*", _ONE_DIRECTORY),
    ("replica.alter.log.dirs.io.max.bytes.per.second", _ONE_DIRECTORY),
    ("replica.socket.receive.buffer.bytes", _BUFFER),
    ("follower.fetch.*", _NO_TIERS),
    # Groups and transactions
    ("group.coordinator.*threads", _LOOP),
    ("group.coordinator.append.linger.ms", "a group's records are written as they are made"),
    ("group.coordinator.cached.buffer.max.bytes", "a group's records are written as they are made"),
    ("group.share.*", _NO_NEW_GROUPS),
    ("group.streams.*", _NO_NEW_GROUPS),
    ("share.coordinator.*", _NO_NEW_GROUPS),
    ("errors.deadletterqueue.*", _NO_NEW_GROUPS),
    ("offsets.load.buffer.size", "a group's records are read in pieces of one size"),
    ("offsets.topic.compression.codec", "a group's records are not compressed"),
    ("transaction.state.log.load.buffer.size", "a transaction's records are read in pieces of one size"),
    # Security and quotas
    ("delegation.token.*", "there are no delegation tokens"),
    ("password.encoder.*", _NO_ZOOKEEPER),
    ("quota.*", _NO_QUOTAS),
    # The rest
    ("metric.reporters", _METRICS),
    ("metrics.num.samples", _METRICS),
    ("metrics.recording.level", _METRICS),
    ("metrics.sample.window.ms", _METRICS),
    ("kafka.metrics.*", _METRICS),
    ("auto.include.jmx.reporter", _METRICS),
    ("telemetry.*", "clients' telemetry is not collected"),
)


def _first(name: str, table: tuple[tuple[str, str], ...]) -> str:
    return next((why for pattern, why in table if fnmatchcase(name, pattern)), "")


def _k(name: str, kind: Type, default: str | None, *bounds: float, **more: Any) -> Option:
    """One row. bounds: the lowest value, and the highest."""
    low, high = (*bounds, None, None)[:2]
    refused = _first(name, REFUSED)
    return Option(
        name, kind, default, "", low, high, inert="" if refused else _first(name, INSTEAD), refused=refused, **more
    )


def without_row(name: str) -> Option | None:
    """For a name without a row that earlier versions of Kafka had, or that takes its end from a user, such as
    `zookeeper.connect` or `listener.name.internal.ssl.keystore.location`. None for all others."""
    option = _k(name, Type.STRING, None)
    return option if option.inert or option.refused else None


KAFKA_OPTIONS: tuple[Option, ...] = (
    _k("alter.config.policy.class.name", _CLASS, None),
    _k("alter.log.dirs.replication.quota.window.num", _I, "11", 1),
    _k("alter.log.dirs.replication.quota.window.size.seconds", _I, "1", 1),
    _k("authorizer.class.name", _S, ""),
    _k("background.threads", _I, "10", 1, dynamic=True),
    _k("client.quota.callback.class", _CLASS, None),
    _k("config.providers", _LIST, "", dynamic=True),
    _k("connection.failed.authentication.delay.ms", _I, "100", 0),
    _k("connections.max.reauth.ms", _L, "0"),
    _k("controlled.shutdown.enable", _B, "true"),
    _k("controller.quorum.append.linger.ms", _I, "25", 0),
    _k("controller.quota.window.num", _I, "11", 1),
    _k("controller.quota.window.size.seconds", _I, "1", 1),
    _k("create.topic.policy.class.name", _CLASS, None),
    _k("delegation.token.expiry.check.interval.ms", _L, "3600000", 1),
    _k("delegation.token.expiry.time.ms", _L, "86400000", 1),
    _k("delegation.token.max.lifetime.ms", _L, "604800000", 1),
    _k("delegation.token.secret.key", _PASSWORD, None),
    _k("delete.records.purgatory.purge.interval.requests", _I, "1"),
    _k("early.start.listeners", _LIST, None),
    _k("errors.deadletterqueue.auto.create.topics.enable", _B, "false", dynamic=True),
    _k("errors.deadletterqueue.topic.name.prefix", _S, "dlq.", dynamic=True),
    _k("fetch.purgatory.purge.interval.requests", _I, "1000"),
    _k("follower.fetch.last.tiered.offset.enable", _B, "false", dynamic=True),
    _k("group.coordinator.append.linger.ms", _I, "-1", -1),
    _k("group.coordinator.background.threads", _I, "2", 1),
    _k("group.coordinator.cached.buffer.max.bytes", _I, "1048588", 524288, dynamic=True),
    _k("group.coordinator.threads", _I, "4", 1),
    _k("group.share.assignment.interval.ms", _I, "1000", 0, dynamic=True),
    _k("group.share.assignors", _LIST, "simple"),
    _k("group.share.delivery.count.limit", _I, "5", 2, 10),
    _k("group.share.heartbeat.interval.ms", _I, "5000", 1),
    _k("group.share.max.assignment.interval.ms", _I, "15000", 0),
    _k("group.share.max.delivery.count.limit", _I, "10", 5, 25),
    _k("group.share.max.heartbeat.interval.ms", _I, "15000", 1),
    _k("group.share.max.partition.max.record.locks", _I, "4000", 2000, 10000),
    _k("group.share.max.record.lock.duration.ms", _I, "60000", 30000, 3600000),
    _k("group.share.max.session.timeout.ms", _I, "60000", 1),
    _k("group.share.max.share.sessions", _I, "2000", 1),
    _k("group.share.max.size", _I, "200", 1, 1000),
    _k("group.share.min.assignment.interval.ms", _I, "0", 0),
    _k("group.share.min.delivery.count.limit", _I, "2", 2, 5),
    _k("group.share.min.heartbeat.interval.ms", _I, "5000", 1),
    _k("group.share.min.partition.max.record.locks", _I, "100", 100, 2000),
    _k("group.share.min.record.lock.duration.ms", _I, "15000", 1000, 30000),
    _k("group.share.min.session.timeout.ms", _I, "45000", 1),
    _k("group.share.partition.max.record.locks", _I, "2000", 100, 10000),
    _k("group.share.record.lock.duration.ms", _I, "30000", 1000, 3600000),
    _k("group.share.session.timeout.ms", _I, "45000", 1),
    _k("group.streams.assignment.interval.ms", _I, "1000", 0, dynamic=True),
    _k("group.streams.assignors", _LIST, "sticky"),
    _k("group.streams.heartbeat.interval.ms", _I, "5000", 1),
    _k("group.streams.initial.rebalance.delay.ms", _I, "3000", 0),
    _k("group.streams.max.assignment.interval.ms", _I, "15000", 0),
    _k("group.streams.max.heartbeat.interval.ms", _I, "15000", 1),
    _k("group.streams.max.session.timeout.ms", _I, "60000", 1),
    _k("group.streams.max.size", _I, "2147483647", 1),
    _k("group.streams.max.standby.replicas", _I, "2", 0),
    _k("group.streams.min.assignment.interval.ms", _I, "0", 0),
    _k("group.streams.min.heartbeat.interval.ms", _I, "5000", 1),
    _k("group.streams.min.session.timeout.ms", _I, "45000", 1),
    _k("group.streams.num.standby.replicas", _I, "0", 0),
    _k("group.streams.rack.aware.assignment.tags", _LIST, ""),
    _k("group.streams.session.timeout.ms", _I, "45000", 1),
    _k("group.streams.topology.description.plugin.class", _CLASS, None),
    _k("kafka.metrics.polling.interval.secs", _I, "10", 1),
    _k("kafka.metrics.reporters", _LIST, ""),
    _k("log.cleaner.enable", _B, "true"),
    _k("log.dir.failure.timeout.ms", _L, "30000", 1),
    _k("max.connection.creation.rate", _I, "2147483647", 0, dynamic=True),
    _k("max.connections.per.ip", _I, "2147483647", 0, dynamic=True),
    _k("max.connections.per.ip.overrides", _S, "", dynamic=True),
    _k("metadata.log.dir", _S, None),
    _k("metadata.log.segment.bytes", _I, "1073741824", 8388608),
    _k("metadata.log.segment.ms", _L, "604800000"),
    _k("metadata.max.idle.interval.ms", _I, "500", 0),
    _k("metadata.max.retention.bytes", _L, "104857600"),
    _k("metadata.max.retention.ms", _L, "604800000"),
    _k("metric.reporters", _LIST, "org.apache.kafka.common.metrics.JmxReporter", dynamic=True),
    _k("metrics.num.samples", _I, "2", 1),
    _k("metrics.recording.level", _S, "INFO"),
    _k("metrics.sample.window.ms", _L, "30000", 1),
    _k("num.io.threads", _I, "8", 1, dynamic=True),
    _k("num.network.threads", _I, "3", 1, dynamic=True),
    _k("num.recovery.threads.per.data.dir", _I, "2", 1, dynamic=True),
    _k("num.replica.alter.log.dirs.threads", _I, None),
    _k("num.replica.fetchers", _I, "1", 1, dynamic=True),
    _k("offsets.load.buffer.size", _I, "5242880", 1),
    _k("offsets.topic.compression.codec", _I, "0"),
    _k(
        "principal.builder.class",
        _CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        dynamic=True,
    ),
    _k("producer.purgatory.purge.interval.requests", _I, "1000"),
    _k("queued.max.requests", _I, "500", 1),
    _k("quota.window.num", _I, "11", 1),
    _k("quota.window.size.seconds", _I, "1", 1),
    _k("remote.fetch.max.wait.ms", _I, "500", 1, dynamic=True),
    _k("remote.list.offsets.request.timeout.ms", _L, "30000", 1, dynamic=True),
    _k("remote.log.index.file.cache.total.size.bytes", _L, "1073741824", 1, dynamic=True),
    _k("remote.log.manager.copier.thread.pool.size", _I, "10", 1, dynamic=True),
    _k("remote.log.manager.copy.max.bytes.per.second", _L, "9223372036854775807", 1, dynamic=True),
    _k("remote.log.manager.copy.quota.window.num", _I, "11", 1),
    _k("remote.log.manager.copy.quota.window.size.seconds", _I, "1", 1),
    _k("remote.log.manager.expiration.thread.pool.size", _I, "10", 1, dynamic=True),
    _k("remote.log.manager.fetch.max.bytes.per.second", _L, "9223372036854775807", 1, dynamic=True),
    _k("remote.log.manager.fetch.quota.window.num", _I, "11", 1),
    _k("remote.log.manager.fetch.quota.window.size.seconds", _I, "1", 1),
    _k("remote.log.manager.follower.thread.pool.size", _I, "2", 1, dynamic=True),
    _k("remote.log.manager.task.interval.ms", _L, "30000", 1),
    _k("remote.log.manager.thread.pool.size", _I, "2", 1),
    _k("remote.log.metadata.custom.metadata.max.bytes", _I, "128", 0),
    _k(
        "remote.log.metadata.manager.class.name",
        _S,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    ),
    _k("remote.log.metadata.manager.class.path", _S, None),
    _k("remote.log.metadata.manager.impl.prefix", _S, "rlmm.config."),
    _k("remote.log.metadata.manager.listener.name", _S, None),
    _k("remote.log.reader.max.pending.tasks", _I, "100", 1),
    _k("remote.log.reader.threads", _I, "10", 1, dynamic=True),
    _k("remote.log.storage.manager.class.name", _S, None),
    _k("remote.log.storage.manager.class.path", _S, None),
    _k("remote.log.storage.manager.impl.prefix", _S, "rsm.config."),
    _k("remote.log.storage.system.enable", _B, "false"),
    _k("replica.socket.receive.buffer.bytes", _I, "65536"),
    _k("sasl.client.callback.handler.class", _CLASS, None),
    _k("sasl.enabled.mechanisms", _LIST, "GSSAPI", dynamic=True),
    _k("sasl.jaas.config", _PASSWORD, None, dynamic=True),
    _k("sasl.kerberos.kinit.cmd", _S, "/usr/bin/kinit", dynamic=True),
    _k("sasl.kerberos.min.time.before.relogin", _L, "60000", dynamic=True),
    _k("sasl.kerberos.principal.to.local.rules", _LIST, "DEFAULT", dynamic=True),
    _k("sasl.kerberos.service.name", _S, None, dynamic=True),
    _k("sasl.kerberos.ticket.renew.jitter", _D, "0.05", dynamic=True),
    _k("sasl.kerberos.ticket.renew.window.factor", _D, "0.8", dynamic=True),
    _k("sasl.login.callback.handler.class", _CLASS, None),
    _k("sasl.login.class", _CLASS, None),
    _k("sasl.login.connect.timeout.ms", _I, None),
    _k("sasl.login.read.timeout.ms", _I, None),
    _k("sasl.login.refresh.buffer.seconds", _SH, "300", dynamic=True),
    _k("sasl.login.refresh.min.period.seconds", _SH, "60", dynamic=True),
    _k("sasl.login.refresh.window.factor", _D, "0.8", dynamic=True),
    _k("sasl.login.refresh.window.jitter", _D, "0.05", dynamic=True),
    _k("sasl.login.retry.backoff.max.ms", _L, "10000"),
    _k("sasl.login.retry.backoff.ms", _L, "100"),
    _k("sasl.mechanism.controller.protocol", _S, "GSSAPI"),
    _k("sasl.mechanism.inter.broker.protocol", _S, "GSSAPI", dynamic=True),
    _k("sasl.oauthbearer.allow.unverified.audience", _B, "false"),
    _k("sasl.oauthbearer.allow.unverified.issuer", _B, "false"),
    _k("sasl.oauthbearer.assertion.algorithm", _S, "RS256", choices=("ES256", "RS256"), any_case=True),
    _k("sasl.oauthbearer.assertion.claim.aud", _S, None),
    _k("sasl.oauthbearer.assertion.claim.exp.seconds", _I, "300", 0, 86400),
    _k("sasl.oauthbearer.assertion.claim.iss", _S, None),
    _k("sasl.oauthbearer.assertion.claim.jti.include", _B, "false"),
    _k("sasl.oauthbearer.assertion.claim.nbf.seconds", _I, "60", 0, 3600),
    _k("sasl.oauthbearer.assertion.claim.sub", _S, None),
    _k("sasl.oauthbearer.assertion.file", _S, None),
    _k("sasl.oauthbearer.assertion.private.key.file", _S, None),
    _k("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None),
    _k("sasl.oauthbearer.assertion.template.file", _S, None),
    _k("sasl.oauthbearer.client.credentials.client.id", _S, None),
    _k("sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None),
    _k("sasl.oauthbearer.clock.skew.seconds", _I, "30"),
    _k("sasl.oauthbearer.expected.audience", _LIST, ""),
    _k("sasl.oauthbearer.expected.issuer", _S, None),
    _k("sasl.oauthbearer.jwks.endpoint.refresh.ms", _L, "3600000"),
    _k("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _L, "10000"),
    _k("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _L, "100"),
    _k("sasl.oauthbearer.jwks.endpoint.url", _S, None),
    _k(
        "sasl.oauthbearer.jwt.retriever.class",
        _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    _k(
        "sasl.oauthbearer.jwt.validator.class",
        _CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    _k("sasl.oauthbearer.scope", _S, None),
    _k("sasl.oauthbearer.scope.claim.name", _S, "scope"),
    _k("sasl.oauthbearer.sub.claim.name", _S, "sub"),
    _k("sasl.oauthbearer.token.endpoint.url", _S, None),
    _k("sasl.server.callback.handler.class", _CLASS, None),
    _k("sasl.server.max.receive.size", _I, "524288"),
    _k("security.inter.broker.protocol", _S, "PLAINTEXT", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    _k("security.providers", _S, None),
    _k("share.coordinator.append.linger.ms", _I, "-1", -1),
    _k("share.coordinator.cached.buffer.max.bytes", _I, "1048588", 524288, dynamic=True),
    _k("share.coordinator.load.buffer.size", _I, "5242880", 1),
    _k("share.coordinator.snapshot.update.records.per.snapshot", _I, "500", 0, 500),
    _k("share.coordinator.state.topic.compression.codec", _I, "0"),
    _k("share.coordinator.state.topic.min.isr", _SH, "2", 1),
    _k("share.coordinator.state.topic.num.partitions", _I, "50", 1),
    _k("share.coordinator.state.topic.replication.factor", _SH, "3", 1),
    _k("share.coordinator.state.topic.segment.bytes", _I, "104857600", 1),
    _k("share.coordinator.threads", _I, "1", 1),
    _k("share.coordinator.write.timeout.ms", _I, "5000", 1),
    _k("share.fetch.purgatory.purge.interval.requests", _I, "1000"),
    _k("socket.connection.setup.timeout.max.ms", _L, "30000"),
    _k("socket.connection.setup.timeout.ms", _L, "10000"),
    _k("socket.receive.buffer.bytes", _I, "102400"),
    _k("ssl.allow.dn.changes", _B, "false"),
    _k("ssl.allow.san.changes", _B, "false"),
    _k("ssl.cipher.suites", _LIST, "", dynamic=True),
    _k("ssl.client.auth", _S, "none", choices=("required", "requested", "none"), dynamic=True),
    _k("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", dynamic=True),
    _k("ssl.endpoint.identification.algorithm", _S, "https", dynamic=True),
    _k("ssl.engine.factory.class", _CLASS, None, dynamic=True),
    _k("ssl.key.password", _PASSWORD, None, dynamic=True),
    _k("ssl.keymanager.algorithm", _S, "SunX509", dynamic=True),
    _k("ssl.keystore.certificate.chain", _PASSWORD, None, dynamic=True),
    _k("ssl.keystore.key", _PASSWORD, None, dynamic=True),
    _k("ssl.keystore.location", _S, None, dynamic=True),
    _k("ssl.keystore.password", _PASSWORD, None, dynamic=True),
    _k("ssl.keystore.type", _S, "JKS", dynamic=True),
    _k("ssl.principal.mapping.rules", _S, "DEFAULT"),
    _k("ssl.protocol", _S, "TLSv1.3", dynamic=True),
    _k("ssl.provider", _S, None, dynamic=True),
    _k("ssl.secure.random.implementation", _S, None, dynamic=True),
    _k("ssl.trustmanager.algorithm", _S, "PKIX", dynamic=True),
    _k("ssl.truststore.certificates", _PASSWORD, None, dynamic=True),
    _k("ssl.truststore.location", _S, None, dynamic=True),
    _k("ssl.truststore.password", _PASSWORD, None, dynamic=True),
    _k("ssl.truststore.type", _S, "JKS", dynamic=True),
    _k("telemetry.max.bytes", _I, "1048576", 1),
    _k("transaction.state.log.load.buffer.size", _I, "5242880", 1),
    _k("transaction.two.phase.commit.enable", _B, "false"),
)
