"""Administration of a cluster: topics, options, offsets, groups, transactions. Retries while no broker answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import (
    add_raft_voter,
    alter_partition_reassignments,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    incremental_alter_configs,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    metadata,
    remove_raft_voter,
    unregister_broker,
    unregister_controller,
    update_features,
)
from . import open_transactions
from .cluster import NAMES_SHOWN, Client
from .committed import delete_committed, fetch_committed, set_committed
from .connection import introduction
from .coordinator import GROUP as GROUP_KEY
from .coordinator import STATE_TOPICS, TRANSACTION, Coordinator
from .deletion import delete_before
from .errors import ClientError, UnsupportedVersion, no_topic
from .groups import GroupDescription, of_classic_group, of_consumer_group
from .offsets import fetch_offsets, fetch_own_ends
from .open_transactions import OpenTransaction, PartitionProducer, TransactionDescription, TransactionListing
from .operation import API_TIMEOUT_MS, Operation
from .raw import READ_UNCOMMITTED
from .types import TopicPartition

TOPIC, BROKER, GROUP = 2, 4, 32  # resource types
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
NAMES_UP_TO = 5  # the last version of DeleteTopics with a separate field for names
PREFERRED, UNCLEAN = 0, 1  # kinds of election
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3  # kinds of a change of a feature's level
TOPIC_SOURCE = 1  # of an option's value: the topic's own
METADATA_TOPIC = "__cluster_metadata"
FENCED_SINCE = 2  # version of DescribeCluster
DEAD = "Dead"  # what DescribeGroups says of a group that does not exist


@dataclass(frozen=True)
class NewTopic:
    """A topic to be created. -1: the cluster's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureLevels:
    """Of a feature: the cluster's finalized level, and the lowest and the highest that the broker asked works at."""

    finalized: int
    lowest: int = 0
    highest: int = 0


@dataclass(frozen=True)
class Reassignment:
    """A partition on its way to other nodes. replicas: all that hold it meanwhile."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Admin:
    """Uses a started `Client`. timeout_ms: of each call, with all retries. Raises KafkaError that names the topic or
    group, ClientError if no broker answers."""

    def __init__(self, client: Client, timeout_ms: int = API_TIMEOUT_MS) -> None:
        self.client = client
        self.timeout_ms = timeout_ms

    async def _ask(self, message: Any, node_id: int | None = None) -> Any:
        """Ask a node; None: whichever answers first, of those that answer by themselves."""
        async with self.client.operation(type(message).API.name, self.timeout_ms) as operation:
            while True:
                try:
                    if node_id is None:
                        return await self.client.ask_any(message, operation.patience_s)
                    return await self.client.request(message, node_id)
                except ClientError as error:
                    await operation.again(error)

    async def _ask_controller(
        self, message: Any, codes: Callable[[Any], Iterable[int]], most_version: int | None = None
    ) -> Any:
        """Ask for what only the controller decides. Brokers of a KRaft cluster forward that, so any will do, unless one
        refuses: then the controller of fresh metadata is asked. codes: the errors of an answer."""
        answer, _ = await self._change(message, codes, most_version)
        return answer

    async def _change(
        self, message: Any, codes: Callable[[Any], Iterable[int]], most_version: int | None = None
    ) -> tuple[Any, bool]:
        """As `_ask_controller`; also whether the answer of an attempt was lost. What was asked for may have been done
        by that one, and is then refused to the next one as done already."""
        name = type(message).API.name
        node: int | None = None
        was_lost = False
        async with self.client.operation(name, self.timeout_ms) as operation:
            while True:
                error: KafkaError | ClientError
                try:
                    answer = await self.client.request(message, node, most_version=most_version)
                    if ErrorCode.NOT_CONTROLLER not in codes(answer):
                        return answer, was_lost
                    error = KafkaError.of(ErrorCode.NOT_CONTROLLER, f"{name}: the broker knows no controller")
                except ClientError as failed:
                    error = failed
                    was_lost = was_lost or failed.was_sent
                await operation.again(error)
                await self.client.refresh_metadata([])
                is_refused = isinstance(error, KafkaError) and self.client.controller_id in self.client.nodes
                node = self.client.controller_id if is_refused else None

    # --- Topics -------------------------------------------------------------------------------------

    async def list_topics(self) -> list[str]:
        """Names of all topics, internal ones too, sorted."""
        return [topic.name for topic in await self.all_topics()]

    async def describe_topics(self, names: Sequence[str]) -> list[Any]:
        """`metadata.MetadataResponseTopic` of each name, in order. Raises UNKNOWN_TOPIC_OR_PARTITION for one that does
        not exist, INVALID_TOPIC_EXCEPTION for an invalid name."""
        topics = [metadata.MetadataRequestTopic(name=name) for name in names]
        answer = await self._ask(metadata.Request(topics=topics, allow_auto_topic_creation=False))
        self.client.learn(answer)
        found = {topic.name: topic for topic in answer.topics}
        for name in names:
            if code := found[name].error_code:
                raise no_topic(name) if code in NO_TOPIC else KafkaError.of(code, f"topic {name}")
        return [found[name] for name in names]

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool = False) -> None:
        """Create topics; afterwards they are in the client's metadata. All are tried; then the first error is
        raised."""
        request = create_topics.Request(
            topics=[
                create_topics.CreatableTopic(
                    name=each.name,
                    num_partitions=each.partitions,
                    replication_factor=each.replication_factor,
                    configs=[create_topics.CreatableTopicConfig(name=k, value=v) for k, v in each.configs.items()],
                )
                for each in topics
            ],
            timeout_ms=self.timeout_ms,
            validate_only=validate_only,
        )
        names = ", ".join(each.name for each in topics[:NAMES_SHOWN])
        async with self.client.operation(f"creation of {names}", self.timeout_ms) as operation:
            answer, was_lost = await self._change(request, lambda answer: (each.error_code for each in answer.topics))
            there = [each.name for each in answer.topics if each.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)]
            if there and not validate_only:
                await self.client.wait_for_topics(there)
            failed = [each for each in answer.topics if each.error_code]
            if was_lost and not validate_only:
                wanted = {each.name: each for each in topics}
                failed = [
                    each
                    for each in failed
                    if each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
                    or not await self._is_as(wanted[each.name], operation)
                ]
        _raise_first((f"topic {each.name}", each.error_code, each.error_message) for each in failed)

    async def _is_as(self, wanted: NewTopic, operation: Operation) -> bool:
        """Whether a topic that is there is as this one, and so perhaps it."""
        while True:
            try:
                [said] = await self.describe_topics([wanted.name])
                options = (await self.describe_configs([wanted.name]))[wanted.name]
                break
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await operation.again(error)  # whoever was asked has not heard of it
        factor = len(said.partitions[0].replica_nodes)
        own = {each.name: each.value for each in options if each.config_source == TOPIC_SOURCE}
        return (
            wanted.partitions in (-1, len(said.partitions))
            and wanted.replication_factor in (-1, factor)
            and own == {name: value for name, value in wanted.configs.items() if value is not None}
        )

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and their data. All are tried; then the first error is raised."""
        request = delete_topics.Request(topic_names=list(names), timeout_ms=self.timeout_ms)
        answer, was_lost = await self._change(
            request, lambda answer: (each.error_code for each in answer.responses), NAMES_UP_TO
        )
        for name in names:
            self.client.topics.pop(name, None)
        for each in answer.responses:
            if was_lost and each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if each.error_code in NO_TOPIC:
                raise no_topic(each.name)
            _raise_first([(f"topic {each.name}", each.error_code, each.error_message)])

    async def create_partitions(self, topic: str, count: int, validate_only: bool = False) -> None:
        """Grow a topic to `count` partitions; afterwards they are in the client's metadata. validate_only: only ask
        whether that could be done."""
        wanted = create_partitions.CreatePartitionsTopic(name=topic, count=count, assignments=None)
        request = create_partitions.Request(topics=[wanted], timeout_ms=self.timeout_ms, validate_only=validate_only)
        async with self.client.operation(f"growing topic {topic} to {count} partitions", self.timeout_ms) as operation:
            answer, was_lost = await self._change(request, lambda answer: (each.error_code for each in answer.results))
            failed = [each for each in answer.results if each.error_code]
            if (
                was_lost
                and not validate_only
                and [each.error_code for each in failed] == [ErrorCode.INVALID_PARTITIONS]
            ):
                await self.client.refresh_metadata([topic])
                failed = [] if len(self.client.partitions(topic)) == count else failed
            _raise_first((f"topic {each.name}", each.error_code, each.error_message) for each in failed)
            while not validate_only:
                await self.client.refresh_metadata([topic])
                if len(self.client.partitions(topic)) >= count:
                    return
                told = f"metadata has {len(self.client.partitions(topic))} of them"
                await operation.again(KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, told))

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records before these offsets (-1: all there are). Returns where each partition begins now. Follows
        leader changes; raises KafkaError: OFFSET_OUT_OF_RANGE past the end, POLICY_VIOLATION for a topic that is only
        compacted."""
        return await delete_before(self.client, offsets, self.timeout_ms)

    # --- Leaders and replicas -----------------------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, kind: int = PREFERRED
    ) -> list[TopicPartition]:
        """Let the preferred replicas lead (PREFERRED), or any live one where there is no leader (UNCLEAN: may lose
        records), of these partitions or of all. Returns those that have another leader now. All are tried; then the
        first error is raised."""
        topics: dict[str, Any] = {}
        for tp in partitions or ():
            topic = elect_leaders.TopicPartitions(topic=tp.topic, partitions=[])
            topics.setdefault(tp.topic, topic).partitions.append(tp.partition)
        request = elect_leaders.Request(
            election_type=kind,
            topic_partitions=None if partitions is None else list(topics.values()),
            timeout_ms=self.timeout_ms,
        )
        answer = await self._ask_controller(
            request,
            lambda answer: [
                answer.error_code,
                *(each.error_code for topic in answer.replica_election_results for each in topic.partition_result),
            ],
        )
        _raise_first([("election of leaders", answer.error_code, None)])
        results = {
            TopicPartition(topic.topic, each.partition_id): each
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }
        _raise_first(
            (f"election of the leader of {tp.topic}-{tp.partition}", each.error_code, each.error_message)
            for tp, each in results.items()
            if each.error_code != ErrorCode.ELECTION_NOT_NEEDED
        )
        return [tp for tp, each in results.items() if not each.error_code]

    async def alter_partition_reassignments(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begin to move partitions to these nodes, the first of which is the preferred leader; None ends a move that is
        under way (KIP-455). All are tried; then the first error is raised."""
        topics: dict[str, Any] = {}
        for tp, nodes in wanted.items():
            partition = alter_partition_reassignments.ReassignablePartition(
                partition_index=tp.partition, replicas=None if nodes is None else list(nodes)
            )
            topic = alter_partition_reassignments.ReassignableTopic(name=tp.topic, partitions=[])
            topics.setdefault(tp.topic, topic).partitions.append(partition)
        request = alter_partition_reassignments.Request(timeout_ms=self.timeout_ms, topics=list(topics.values()))
        answer = await self._ask_controller(request, lambda answer: [answer.error_code])
        _raise_first([("move of partitions", answer.error_code, answer.error_message)])
        _raise_first(
            (f"move of {topic.name}-{each.partition_index}", each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        )

    async def list_partition_reassignments(self) -> dict[TopicPartition, Reassignment]:
        """All partitions on their way to other nodes."""
        request = list_partition_reassignments.Request(timeout_ms=self.timeout_ms)
        answer = await self._ask_controller(request, lambda answer: [answer.error_code])
        _raise_first([("moves of partitions", answer.error_code, answer.error_message)])
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    # --- Options ------------------------------------------------------------------------------------

    async def describe_configs(
        self, names: Sequence[str], resource_type: int = TOPIC, *, documentation: bool = False
    ) -> dict[str, list[Any]]:
        """name -> `describe_configs.DescribeConfigsResourceResult` of each option. Names of topics or, with
        resource_type=BROKER, node ids, with GROUP, groups. documentation: include the broker's description of each
        option."""
        resources = [
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        node = int(names[0]) if resource_type == BROKER and names else None
        request = describe_configs.Request(resources=resources, include_documentation=documentation)
        answer = await self._ask(request, node)
        _raise_first((each.resource_name, each.error_code, each.error_message) for each in answer.results)
        return {each.resource_name: each.configs for each in answer.results}

    async def alter_configs(
        self,
        topic: str,
        changes: Mapping[str, str | tuple[str, str | None] | None],
        validate_only: bool = False,
    ) -> None:
        """A topic's options. changes: option -> value, None for the default, or (set|delete|append|subtract, value).
        validate_only: only ask whether that could be done."""
        request = _altered(TOPIC, topic, changes)
        request.validate_only = validate_only
        answer = await self._ask_controller(request, lambda answer: (each.error_code for each in answer.responses))
        _raise_first((f"topic {each.resource_name}", each.error_code, each.error_message) for each in answer.responses)

    async def alter_group_configs(self, group: str, changes: Mapping[str, str | None]) -> None:
        """A group's options, such as `consumer.session.timeout.ms`; it need not exist yet. changes: as above. Raises
        KafkaError INVALID_CONFIG, or INVALID_REQUEST where the cluster has none for groups (Kafka before 3.8)."""
        request = _altered(GROUP, group, changes)
        answer = await self._ask_controller(request, lambda answer: (each.error_code for each in answer.responses))
        _raise_first((f"group {each.resource_name}", each.error_code, each.error_message) for each in answer.responses)

    async def alter_broker_configs(self, node_id: int, changes: Mapping[str, str | None]) -> None:
        """Options of one broker that can be changed while it runs, which it checks itself. changes: as above."""
        answer = await self._ask(_altered(BROKER, str(node_id), changes), node_id)
        _raise_first((f"broker {each.resource_name}", each.error_code, each.error_message) for each in answer.responses)

    # --- Offsets ------------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, str | int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, tuple[int, int, int]]:
        """partition -> (offset, timestamp, leader epoch) for "earliest", "latest", "max_timestamp", or the first record
        at or after a time in ms; offset -1 if there is none. With READ_COMMITTED, latest is the last stable offset.
        Follows leader changes; raises KafkaError if a partition has no leader within the time."""
        return await fetch_offsets(self.client, wanted, isolation, self.timeout_ms)

    # --- Groups -------------------------------------------------------------------------------------

    async def list_groups(self) -> list[Any]:
        """`list_groups.ListedGroup` of all brokers' groups."""
        groups: dict[str, Any] = {}
        async with self.client.operation("groups of all nodes", self.timeout_ms):
            for node in sorted(self.client.nodes):
                answer = await self._ask(list_groups.Request(), node)
                if answer.error_code:
                    raise KafkaError.of(answer.error_code, f"groups of node {node}")
                groups |= {each.group_id: each for each in answer.groups}
        return [groups[name] for name in sorted(groups)]

    async def describe_groups(self, names: Sequence[str]) -> list[Any]:
        """`describe_groups.DescribedGroup` of each; a group that does not exist is Dead."""
        found = []
        async with self.client.operation("description of groups", self.timeout_ms):
            for name in names:
                request = describe_groups.Request(groups=[name])
                found.append(await self._ask_coordinator(name, request, 5, lambda answer: answer.groups))
        return found

    async def describe_consumer_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        """Each group, be it of the consumer protocol (KIP-848) or a classic one. Raises KafkaError GROUP_ID_NOT_FOUND
        for one that does not exist, or is of a type of its own."""
        found = []
        async with self.client.operation("description of groups", self.timeout_ms):
            for name in names:
                found.append(await self._describe_group(name))
        return found

    async def _describe_group(self, name: str) -> GroupDescription:
        request = consumer_group_describe.Request(group_ids=[name])
        try:
            return of_consumer_group(await self._ask_coordinator(name, request, 1, lambda answer: answer.groups))
        except UnsupportedVersion:
            pass  # a cluster of classic groups alone
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        [said] = await self.describe_groups([name])
        if said.group_state == DEAD:
            raise KafkaError.of(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name}")
        return of_classic_group(said)

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """All committed offsets of a group, without those of open transactions."""
        coordinator = Coordinator(self.client, group)
        found = await fetch_committed(coordinator, None, self.timeout_ms, require_stable=False)
        return {tp: each.offset for tp, each in found.items()}

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the next records to read for a group without members, which need not exist. Raises
        KafkaError UNKNOWN_MEMBER_ID if it has members: they would go on from where they are."""
        await set_committed(Coordinator(self.client, group), offsets, self.timeout_ms)

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget committed offsets of topics that no member of the group reads. Raises KafkaError
        GROUP_SUBSCRIBED_TO_TOPIC, GROUP_ID_NOT_FOUND."""
        await delete_committed(Coordinator(self.client, group), partitions, self.timeout_ms)

    async def delete_groups(self, names: Sequence[str]) -> None:
        """Delete groups without members, and their offsets. Raises KafkaError NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        async with self.client.operation("deletion of groups", self.timeout_ms):
            for name in names:
                request = delete_groups.Request(groups_names=[name])
                await self._ask_coordinator(
                    name, request, 2, lambda answer: answer.results, done=ErrorCode.GROUP_ID_NOT_FOUND
                )

    async def _ask_coordinator(
        self,
        key: str,
        message: Any,
        most_version: int | None,
        results: Callable[[Any], Sequence[Any]],
        done: int | None = None,
    ) -> Any:
        """Return the only result of the answer. Retries while the coordinator is unavailable, loads or moves. done: the
        error that says so of a request which an attempt whose answer was lost may have done."""
        coordinator = Coordinator(self.client, key, key_type=GROUP_KEY)
        found, _ = await self._asked(coordinator, message, most_version, results, done)
        return found

    async def _asked(
        self,
        coordinator: Coordinator,
        message: Any,
        most_version: int | None,
        results: Callable[[Any], Sequence[Any]],
        done: int | None = None,
    ) -> tuple[Any, int]:
        """The only result of the answer, and the node that gave it."""
        was_lost = False
        what = f"{type(message).API.name} of {coordinator.name}"
        async with self.client.operation(what, self.timeout_ms) as operation:
            while True:
                try:
                    node = await coordinator.find(self.timeout_ms)
                    [one] = results(await coordinator.ask(message, most_version=most_version))
                    coordinator.heard(one.error_code)
                    if not one.error_code or (was_lost and one.error_code == done):
                        return one, node
                    error: KafkaError | ClientError = KafkaError.of(one.error_code, coordinator.name)
                except ClientError as failed:
                    error = failed
                    was_lost = was_lost or failed.was_sent
                await operation.again(error)

    # --- Transactions -------------------------------------------------------------------------------

    async def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, sorted (KIP-664). Those in one of these states, by Kafka's names;
        of one of these producers; whose transaction began longer ago; and whose id matches a regular expression as a
        whole (RE2). Raises KafkaError INVALID_REGULAR_EXPRESSION; UnsupportedVersion if a broker cannot filter so."""
        request = list_transactions.Request(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        needed = 2 if pattern is not None else 1 if longer_than_ms >= 0 else 0
        found = []
        async with self.client.operation("transactions of all nodes", self.timeout_ms) as operation:
            for node in sorted(self.client.nodes):
                connection = await self.client.connection(node)
                if not connection.supports(list_transactions.API, needed):
                    raise UnsupportedVersion(f"node {node} cannot list transactions by this filter")
                while (answer := await self._ask(request, node)).error_code:
                    await operation.again(KafkaError.of(answer.error_code, f"transactions of node {node}"))
                found += [
                    TransactionListing(each.transactional_id, node, each.producer_id, each.transaction_state)
                    for each in answer.transaction_states
                ]
        return sorted(found, key=lambda each: each.transactional_id)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """What its coordinator knows of a transactional id. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
        request = describe_transactions.Request(transactional_ids=[transactional_id])
        coordinator = Coordinator(self.client, transactional_id, key_type=TRANSACTION)
        said, node = await self._asked(coordinator, request, None, lambda answer: answer.transaction_states)
        return open_transactions.described(said, node)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[PartitionProducer]]:
        """The producers that the leaders of partitions remember."""
        return await open_transactions.fetch_producers(self.client, partitions, self.timeout_ms)

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], before_ms: int
    ) -> list[OpenTransaction]:
        """Transactions that partitions hold open, have written nothing since (ms of the epoch), and that no coordinator
        will end: their readers wait until `abort_transaction`. A time less than the longest timeout of transactions ago
        may find some that are only under way. Raises KafkaError where a coordinator does not tell of its transactions.
        """
        async with self.client.operation("search for hanging transactions", self.timeout_ms) as operation:
            found = open_transactions.open_before(await self.describe_producers(partitions), before_ms)
            if not found:
                return []
            while (missing := await self._why_unlisted()) is not None:
                await operation.again(missing)
            producer_ids = sorted({each.producer.producer_id for each in found})
            known: dict[int, TransactionDescription] = {}
            for each in await self.list_transactions(producer_ids=producer_ids):
                try:
                    said = await self.describe_transaction(each.transactional_id)
                except KafkaError as error:
                    if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # else it has expired since
                        raise
                else:
                    known[said.producer_id] = said
            return open_transactions.hanging(found, known)

    async def _why_unlisted(self) -> KafkaError | None:
        """Why some transactions are listed by nobody, if there may be such: they have no coordinator now."""
        topic = STATE_TOPICS[TRANSACTION]
        await self.client.refresh_metadata([topic])
        problems = (self.client.why_no_leader(TopicPartition(topic, each)) for each in self.client.partitions(topic))
        return next((each for each in problems if each is not None), None)

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> PartitionProducer:
        """Abort the open transaction whose first record has this offset, in this partition alone: for those that hang.
        Returns its producer. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND if there is none."""
        async with self.client.operation(f"abort in {partition.topic}-{partition.partition}", self.timeout_ms):
            held = (await self.describe_producers([partition]))[partition]
            found = [each for each in held if each.transaction_start == start_offset]
            if not found:
                where = f"{partition.topic}-{partition.partition}"
                told = f"no open transaction of {where} begins at offset {start_offset}"
                raise KafkaError.of(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, told)
            await open_transactions.abort(self.client, partition, found[0], self.timeout_ms)
            return found[0]

    # --- Cluster ------------------------------------------------------------------------------------

    async def cluster(self) -> Any:
        """`describe_cluster.Response`, with the brokers that are fenced (down, or not ready) where the cluster tells of
        them (Kafka from 4.0 on)."""
        connection = await self.client.connection()
        fenced = connection.supports(describe_cluster.API, FENCED_SINCE)
        return await self._ask(describe_cluster.Request(include_fenced_brokers=fenced))

    async def describe_quorum(self) -> tuple[Any, list[Any]]:
        """The metadata quorum: `describe_quorum.PartitionData`, and `describe_quorum.Node` of each voter where the
        cluster tells of them (KIP-853). Raises UnsupportedVersion on a cluster with ZooKeeper."""
        partition = describe_quorum.PartitionRequest(partition_index=0)
        topic = describe_quorum.TopicRequest(topic_name=METADATA_TOPIC, partitions=[partition])
        answer = await self._ask_controller(
            describe_quorum.Request(topics=[topic]), lambda answer: [answer.error_code, *_quorum_codes(answer)]
        )
        _raise_first([("metadata quorum", answer.error_code, answer.error_message)])
        [found] = [each for topic in answer.topics for each in topic.partitions]
        _raise_first([("metadata quorum", found.error_code, found.error_message)])
        return found, list(answer.nodes)

    async def add_voter(
        self, node_id: int, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]], timeout_ms: int
    ) -> None:
        """Make a controller that follows the metadata quorum one of its voters (KIP-853), and wait until it is.

        directory_id: 16 bytes. endpoints: (listener, host, port). timeout_ms: the leader's. Raises KafkaError:
        DUPLICATE_VOTER, UNSUPPORTED_VERSION where the voters are configured (kraft.version 0), REQUEST_TIMED_OUT if it
        cannot be done now, with the reason.
        """
        request = add_raft_voter.Request(
            cluster_id=None,
            timeout_ms=timeout_ms,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[add_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in endpoints],
        )
        answer, was_lost = await self._change(request, lambda answer: [answer.error_code])
        if not was_lost or answer.error_code != ErrorCode.DUPLICATE_VOTER:
            _raise_first([(f"voter {node_id}", answer.error_code, answer.error_message)])

    async def remove_voter(self, node_id: int) -> None:
        """Take a controller out of the metadata quorum (KIP-853). Raises KafkaError: VOTER_NOT_FOUND,
        UNSUPPORTED_VERSION where the voters are configured (kraft.version 0)."""
        said, _ = await self.describe_quorum()
        voters = {each.replica_id: each for each in said.current_voters}
        if node_id not in voters:
            ids = ", ".join(map(str, sorted(voters)))
            raise KafkaError(
                ErrorCode.VOTER_NOT_FOUND, f"node {node_id} is no voter of the quorum: the voters are {ids}"
            )
        request = remove_raft_voter.Request(
            cluster_id=None, voter_id=node_id, voter_directory_id=voters[node_id].replica_directory_id
        )
        answer, was_lost = await self._change(request, lambda answer: [answer.error_code])
        if not was_lost or answer.error_code != ErrorCode.VOTER_NOT_FOUND:
            _raise_first([(f"voter {node_id}", answer.error_code, answer.error_message)])

    async def unregister_controller(self, node_id: int) -> bool:
        """Remove the registration of a controller that will not come back; whether the cluster can (Kafka from 4.4 on),
        and there was one."""
        request = unregister_controller.Request(controller_id=node_id)
        try:
            answer, was_lost = await self._change(request, lambda answer: [answer.error_code])
        except UnsupportedVersion:
            return False
        if answer.error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED:
            return was_lost
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return False
        _raise_first([(f"controller {node_id}", answer.error_code, answer.error_message)])
        return True

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker that will not come back from the cluster. Raises KafkaError: BROKER_ID_NOT_REGISTERED."""
        request = unregister_broker.Request(broker_id=broker_id)
        answer, was_lost = await self._change(request, lambda answer: [answer.error_code])
        if not was_lost or answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
            _raise_first([(f"broker {broker_id}", answer.error_code, answer.error_message)])

    async def features(self) -> dict[str, FeatureLevels]:
        """The features of the cluster, by name (KIP-584): those finalized, and those that a broker supports."""
        answer = await self._ask(introduction())
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        return {
            name: FeatureLevels(finalized.get(name, 0), *supported.get(name, (0, 0)))
            for name in sorted({**finalized, **supported})
        }

    async def update_features(
        self, levels: Mapping[str, int], kind: int = UPGRADE, validate_only: bool = False
    ) -> None:
        """Finalize other levels, all or none. Raises KafkaError: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED."""
        updates = [
            update_features.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ]
        request = update_features.Request(feature_updates=updates, validate_only=validate_only)
        answer = await self._ask_controller(request, lambda answer: [answer.error_code])
        _raise_first([("features", answer.error_code, answer.error_message)])
        _raise_first((each.feature, each.error_code, each.error_message) for each in answer.results)

    async def all_topics(self) -> list[Any]:
        """`metadata.MetadataResponseTopic` of every topic, internal ones too, by name."""
        answer = await self._ask(metadata.Request(topics=None, allow_auto_topic_creation=False))
        return sorted((each for each in answer.topics if not each.error_code), key=lambda each: each.name)

    async def describe_topic_partitions(self, names: Sequence[str]) -> dict[TopicPartition, Any]:
        """`describe_topic_partitions.DescribeTopicPartitionsResponsePartition` of all partitions of these topics, which
        has the replicas that may lead without loss (KIP-966)."""
        topics = [describe_topic_partitions.TopicRequest(name=name) for name in sorted(names)]
        found: dict[TopicPartition, Any] = {}
        cursor = None
        while topics:
            answer = await self._ask(describe_topic_partitions.Request(topics=topics, cursor=cursor))
            _raise_first((f"topic {each.name}", each.error_code, None) for each in answer.topics)
            found |= {
                TopicPartition(t.name, each.partition_index): each for t in answer.topics for each in t.partitions
            }
            if (cursor := answer.next_cursor) is None:
                break
        return found

    async def log_sizes(self, node_id: int) -> dict[TopicPartition, int]:
        """Bytes of each partition's log on a broker."""
        answer = await self._ask(describe_log_dirs.Request(topics=None), node_id)
        _raise_first([(f"logs of node {node_id}", answer.error_code, None)])
        _raise_first((f"{each.log_dir} of node {node_id}", each.error_code, None) for each in answer.results)
        return {
            TopicPartition(topic.name, each.partition_index): each.partition_size
            for result in answer.results
            for topic in result.topics
            for each in topic.partitions
            if not each.is_future_key
        }

    async def disk_space(self, node_id: int) -> tuple[int, int] | None:
        """Bytes that are usable, and in all, of a broker's log directory; of the fullest, if it has several. None if it
        does not tell."""
        answer = await self._ask(describe_log_dirs.Request(topics=[]), node_id)
        told = [(each.usable_bytes, each.total_bytes) for each in answer.results if each.total_bytes > 0]
        return min(told, default=None)

    async def replica_ends(
        self, wanted: Mapping[int, Iterable[TopicPartition]]
    ) -> dict[tuple[int, TopicPartition], int]:
        """(node, partition) -> where that replica's own log ends, by Kafka's requests for debugging. wanted: partitions
        by node. What a node does not answer is left out."""
        found: dict[tuple[int, TopicPartition], int] = {}
        for node, tps in wanted.items():
            with contextlib.suppress(ClientError):
                found |= {(node, tp): end for tp, end in (await fetch_own_ends(self.client, node, tps)).items()}
        return found


def _quorum_codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def _altered(kind: int, name: str, changes: Mapping[str, str | tuple[str, str | None] | None]) -> Any:
    operations = {option: _operation(change) for option, change in changes.items()}
    configs = [
        incremental_alter_configs.AlterableConfig(name=option, config_operation=OPERATIONS[operation], value=value)
        for option, (operation, value) in operations.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return incremental_alter_configs.Request(resources=[resource])


def _operation(change: str | tuple[str, str | None] | None) -> tuple[str, str | None]:
    if isinstance(change, tuple):
        return change
    return ("delete", None) if change is None else ("set", change)


def _raise_first(results: Iterable[tuple[str, int, str | None]]) -> None:
    for what, code, message in list(results):
        if code:
            raise KafkaError.of(code, f"{what}: {message or KafkaError.of(code).name}")
