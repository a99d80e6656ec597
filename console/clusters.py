"""`isthmus cluster` and `isthmus quorum`: brokers, leaders, what is not in sync and why, and the metadata quorum.

All is asked by Kafka's own requests, so that it works on any Kafka. `Facts` is what was heard; what is told of it is
found by pure functions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import typer

from ..client import Admin, TopicPartition
from ..client.admin import BROKER
from ..client.errors import ClientError, UnsupportedVersion
from ..deploy.errors import DeployError, counted
from ..protocol.errors import KafkaError
from ..protocol.primitives import uuid_to_str
from . import output
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

cluster = typer.Typer(no_args_is_help=True)
quorum = typer.Typer(no_args_is_help=True, invoke_without_command=True)

ACTIVE, FENCED, UNKNOWN = "active", "fenced", "unknown"
IN_SYNC = "min.insync.replicas"
INTERNAL = "__"  # how the names of topics begin that clients do not make
FACTORS = {  # which option of brokers says how many replicas an internal topic has; DEFAULT_FACTOR for others
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
DEFAULT_FACTOR = "default.replication.factor"
MIB = 1 << 20
SPACE_TIMEOUT_S = 2.0  # for a broker to say what room its disk has
CONTROLLER_TIMEOUT_MS = 8_000  # for the controller to answer; an election takes less
NO_CONTROLLER = (
    "no controller has answered: more than half of the controllers must run and reach each other. What is shown is "
    "what one broker knew last"
)
GROW = "isthmus topic replicas --internal"
BROKER_COLUMNS = (
    ("broker_id", "broker"), "state", "controller", "rack", "address", "leads", "replicas",
    ("not_in_sync", "not in sync"),
)  # fmt: skip
FACTOR_COLUMNS = ("topic", "replicas", "wanted")
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", ("min_isr", "min isr"), "reason")
QUORUM_COLUMNS = (("node_id", "node"), "role", "leader", ("log_end_offset", "end"), "lag", "caught_up", "address")


@dataclass
class Facts:
    """What a cluster says of itself. brokers: DescribeClusterBroker; topics: MetadataResponseTopic. leader_id: of the
    metadata quorum, -1 if it is not known. ends: where logs of replicas end, by node. eligible: of partitions without a
    leader, replicas that may lead. adding: replicas that partitions on their way are given. factors: how many replicas
    internal topics shall have. space: bytes that are usable, and in all, on disks of brokers that do not use a log.
    trouble: why no more than one broker's metadata is known; empty if all is."""

    cluster_id: str
    leader_id: int
    brokers: Sequence[Any]
    topics: Sequence[Any]
    adding: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    ends: Mapping[tuple[int, TopicPartition], int] = field(default_factory=dict)
    eligible: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    factors: Mapping[str, int] = field(default_factory=dict)
    space: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    trouble: str = ""

    @cached_property
    def _states(self) -> dict[int, str]:
        return {each.broker_id: FENCED if each.is_fenced else ACTIVE for each in self.brokers}

    def state(self, node: int) -> str:
        """ACTIVE, FENCED, or UNKNOWN for a broker that is not in the cluster."""
        return self._states.get(node, UNKNOWN)


# --- Commands -------------------------------------------------------------------------------------------------------


@cluster.callback()
def cluster_group() -> None:
    pass


@quorum.callback()
def quorum_group(context: typer.Context, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    command = context.invoked_subcommand
    if command is None:
        quorum_status(bootstrap, as_json)
        return
    sources = (context.get_parameter_source(name) for name in context.params)
    if any(source and source.name == "COMMANDLINE" for source in sources):  # or it would ask another cluster
        raise DeployError(f"write options behind the command: isthmus quorum {command} -b {bootstrap}")


@cluster.command()
def status(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """Brokers and what each leads, and every partition that is not fully in sync, with the reason."""
    facts = asyncio.run(_facts(bootstrap))
    found = told(facts)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    brokers, lacking, offline = found["brokers"], found["under_replicated"], found["offline"]
    away = [each for each in brokers if each["state"] != ACTIVE]
    down = f", {len(away)} of them not active" if away else ""
    there = f"{counted(found['topics'], 'topic')} with {counted(found['partitions'], 'partition')}"
    moving = f", {found['moving']} on their way" if found["moving"] else ""
    output.out.print(
        f"[bold]{found['cluster_id']}[/bold]  {counted(len(brokers), 'broker')}{down}; {there}: {len(lacking)} "
        f"under-replicated, {len(offline)} offline{moving}"
    )
    if found["trouble"]:
        output.out.print(f"[bold]{found['trouble']}[/bold]")
    output.show(map(in_words, brokers), BROKER_COLUMNS, False, "no brokers")
    for title, rows in (("under-replicated", lacking), ("offline", offline)):
        if rows:
            output.out.print(f"\n[bold]{title}[/bold]")
            output.show(map(in_words, rows), PARTITION_COLUMNS, False, "")
    if rows := found["too_few_replicas"]:
        output.out.print(f"\n[bold]too few replicas[/bold]  `{GROW} -b {bootstrap}` gives them more")
        output.show(map(in_words, rows), FACTOR_COLUMNS, False, "")


@quorum.command("status")
def quorum_status(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """The metadata quorum: its leader, which is the controller, its voters and observers, and how far each is."""

    async def run() -> dict[str, Any]:
        async with connected(bootstrap) as client:
            try:
                said, nodes = await Admin(client, CONTROLLER_TIMEOUT_MS).describe_quorum()
            except UnsupportedVersion:
                raise
            except (ClientError, KafkaError) as error:
                raise DeployError(
                    "the metadata quorum has no leader that answers: more than half of its voters must run and reach "
                    f"each other; `isthmus cluster status -b {bootstrap}` shows what a broker knew last ({error})"
                ) from error
            return quorum_told(said, nodes)

    found = asyncio.run(run())
    if as_json:
        print(json.dumps(found, indent=2))
        return
    output.out.print(
        f"leader [bold]{found['leader_id']}[/bold]  epoch {found['leader_epoch']}  high watermark "
        f"{found['high_watermark']}"
    )
    output.show(map(in_words, found["replicas"]), QUORUM_COLUMNS, False, "no voters")


async def _facts(bootstrap: str) -> Facts:
    async with connected(bootstrap) as client:
        admin = Admin(client)
        said = await admin.cluster()
        topics = await admin.all_topics()
        try:
            leader, moves = await _of_controller(Admin(client, CONTROLLER_TIMEOUT_MS), said.controller_id)
        except (ClientError, KafkaError):  # then brokers may hang, too: no more is asked of them
            return Facts(said.cluster_id, -1, said.brokers, topics, trouble=NO_CONTROLLER)
        facts = Facts(said.cluster_id, leader, said.brokers, topics, {tp: each.adding for tp, each in moves.items()})
        lacking = [(tp, each) for tp, each in partitions_of(topics) if lacks(each)]
        names = sorted({tp.topic for tp, _ in lacking})
        if names:
            configs = await admin.describe_configs(names)
            facts.min_isr = {
                name: next((int(each.value) for each in entries if each.name == IN_SYNC and each.value), 1)
                for name, entries in configs.items()
            }
        facts.factors = await factors(admin, said.brokers, topics)
        facts.ends = await admin.replica_ends(_to_be_asked(facts, lacking))
        facts.space = await _space(admin, facts, lacking)
        if offline := sorted({tp.topic for tp, each in lacking if each.leader_id < 0}):
            try:
                described = await admin.describe_topic_partitions(offline)
                facts.eligible = {tp: each.eligible_leader_replicas or () for tp, each in described.items()}
            except UnsupportedVersion:
                pass
        return facts


async def _of_controller(admin: Admin, told: int) -> tuple[int, Mapping[TopicPartition, Any]]:
    """The controller's id and what is on its way. told: what Metadata says, by which a KRaft cluster's clients may be
    told of any broker as the controller."""
    try:
        leader = (await admin.describe_quorum())[0].leader_id
    except UnsupportedVersion:
        leader = told
    return leader, await admin.list_partition_reassignments()


async def _space(
    admin: Admin, facts: Facts, lacking: Iterable[tuple[TopicPartition, Any]]
) -> dict[int, tuple[int, int]]:
    """See `Facts.space`. What a broker does not answer is left out."""
    found: dict[int, tuple[int, int]] = {}
    for node in sorted({node for _, each in lacking for node in each.offline_replicas}):
        if facts.state(node) == ACTIVE:
            with contextlib.suppress(ClientError, KafkaError, TimeoutError):
                async with asyncio.timeout(SPACE_TIMEOUT_S):  # it may hang, and the others are known
                    told = await admin.disk_space(node)
                if told is not None:
                    found[node] = told
    return found


async def factors(admin: Admin, brokers: Iterable[Any], topics: Iterable[Any]) -> dict[str, int]:
    """How many replicas each internal topic shall have: what the living brokers are set to, the most of it, but no more
    than there are. brokers: DescribeClusterBroker; topics: MetadataResponseTopic."""
    internal = [each.name for each in topics if each.name.startswith(INTERNAL)]
    active = [str(each.broker_id) for each in brokers if not each.is_fenced]
    wanted: dict[str, int] = {}
    for node in active if internal else ():
        options = (await admin.describe_configs([node], BROKER))[node]
        for option in options:
            if option.value and option.name in (*FACTORS.values(), DEFAULT_FACTOR):
                wanted[option.name] = max(wanted.get(option.name, 1), int(option.value))
    return {name: min(len(active), wanted.get(FACTORS.get(name, DEFAULT_FACTOR), 1)) for name in internal}


def _to_be_asked(facts: Facts, lacking: Iterable[tuple[TopicPartition, Any]]) -> dict[int, list[TopicPartition]]:
    """Whose logs' ends tell how far a replica is behind: its own, and the leader's."""
    asked: dict[int, list[TopicPartition]] = {}
    for tp, each in lacking:
        behind = [node for node in each.replica_nodes if node not in each.isr_nodes and facts.state(node) == ACTIVE]
        if behind and each.leader_id >= 0:
            for node in (each.leader_id, *behind):
                asked.setdefault(node, []).append(tp)
    return asked


# --- What is told ---------------------------------------------------------------------------------------------------


def told(facts: Facts) -> dict[str, Any]:
    """What `cluster status --json` prints."""
    every = list(partitions_of(facts.topics))
    lacking = [_row(facts, tp, each) for tp, each in every if lacks(each)]
    return {
        "cluster_id": facts.cluster_id,
        "controller_id": facts.leader_id,
        "trouble": facts.trouble,
        "topics": len(facts.topics),
        "partitions": len(every),
        "moving": len(facts.adding),
        "brokers": _broker_rows(facts, [each for _, each in every]),
        "under_replicated": [row for row in lacking if row["leader"] is not None],
        "offline": [row for row in lacking if row["leader"] is None],
        "too_few_replicas": _with_too_few(facts),
    }


def _with_too_few(facts: Facts) -> list[dict[str, Any]]:
    """Internal topics that were made when there were fewer brokers."""
    rows = []
    for topic in facts.topics:
        fewest = min((len(each.replica_nodes) for each in topic.partitions), default=0)
        if fewest < facts.factors.get(topic.name, 0):
            rows.append({"topic": topic.name, "replicas": fewest, "wanted": facts.factors[topic.name]})
    return rows


def partitions_of(topics: Iterable[Any]) -> Iterable[tuple[TopicPartition, Any]]:
    """Partitions of MetadataResponseTopic, by topic and index."""
    for topic in topics:
        for each in sorted(topic.partitions, key=lambda each: each.partition_index):
            yield TopicPartition(topic.name, each.partition_index), each


def lacks(partition: Any) -> bool:
    """Whether a partition is without a leader, or a replica of it is not in sync."""
    return partition.leader_id < 0 or any(each not in partition.isr_nodes for each in partition.replica_nodes)


def _broker_rows(facts: Facts, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    known = {each.broker_id: each for each in facts.brokers}
    named = {node for each in partitions for node in each.replica_nodes}
    rows = []
    for node in sorted(named | known.keys()):
        each = known.get(node)
        mine = [partition for partition in partitions if node in partition.replica_nodes]
        rows.append(
            {
                "broker_id": node,
                "state": facts.state(node),
                "controller": node == facts.leader_id,
                "rack": each.rack if each else None,
                "address": f"{each.host}:{each.port}" if each else None,
                "leads": len([partition for partition in mine if partition.leader_id == node]),
                "replicas": len(mine),
                "not_in_sync": len([partition for partition in mine if node not in partition.isr_nodes]),
            }
        )
    return rows


def _row(facts: Facts, tp: TopicPartition, partition: Any) -> dict[str, Any]:
    missing = [node for node in partition.replica_nodes if node not in partition.isr_nodes]
    if partition.leader_id < 0:
        reason = _why_offline(facts, tp, partition)
    else:
        reason = "; ".join(_why_missing(facts, tp, partition, node) for node in missing)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "replicas": list(partition.replica_nodes),
        "isr": list(partition.isr_nodes),
        "missing": missing,
        "min_isr": min(facts.min_isr.get(tp.topic, 1), len(partition.replica_nodes)),
        "reason": reason,
    }


def _why_missing(facts: Facts, tp: TopicPartition, partition: Any, node: int) -> str:
    if facts.state(node) != ACTIVE:
        return _why_away(facts, node)
    if node in partition.offline_replicas:
        return _why_unused(facts, node)
    end, own = facts.ends.get((partition.leader_id, tp)), facts.ends.get((node, tp))
    behind = "" if end is None or own is None else f", {max(0, end - own)} records behind"
    if node in facts.adding.get(tp, ()):
        return f"broker {node} is new to it and copies it{behind}"
    return f"broker {node} lags{behind}"


def _why_away(facts: Facts, node: int) -> str:
    if facts.state(node) == FENCED:
        return f"broker {node} is fenced: it is down, or the controller does not hear of it"
    return f"broker {node} is not in the cluster"


def _why_offline(facts: Facts, tp: TopicPartition, partition: Any) -> str:
    may_lead = list(dict.fromkeys((*partition.isr_nodes, *facts.eligible.get(tp, ()))))
    if not may_lead:
        return "no replica that has all committed records is known: start all of its brokers"
    away = [node for node in may_lead if facts.state(node) != ACTIVE]
    if away:
        return "; ".join(_why_away(facts, node) for node in away)
    return "; ".join(_why_unused(facts, node) for node in may_lead)


def _why_unused(facts: Facts, node: int) -> str:
    """Why an active broker does not use a log."""
    if node not in facts.space:
        return f"its log cannot be used on broker {node}: see that broker's log"
    usable, total = (each / MIB for each in facts.space[node])
    return (
        f"its log cannot be used on broker {node}, whose disk has {usable:.1f} of {total:.1f} MiB free: see that "
        "broker's log"
    )


def quorum_told(said: Any, nodes: Iterable[Any]) -> dict[str, Any]:
    """What `quorum status --json` prints. said: `describe_quorum.PartitionData`."""
    addresses = {each.node_id: [f"{at.host}:{at.port}" for at in each.listeners] for each in nodes}
    every = [*said.current_voters, *said.observers]
    end = max((each.log_end_offset for each in every if each.replica_id == said.leader_id), default=0)
    # The leader's is the time of the answer.
    now_ms = max((each.last_caught_up_timestamp for each in every), default=-1)
    rows = []
    for role, replicas in (("voter", said.current_voters), ("observer", said.observers)):
        for each in sorted(replicas, key=lambda each: each.replica_id):
            caught_up_ms = each.last_caught_up_timestamp
            rows.append(
                {
                    "node_id": each.replica_id,
                    "role": role,
                    "directory_id": uuid_to_str(each.replica_directory_id),
                    "leader": each.replica_id == said.leader_id,
                    "log_end_offset": each.log_end_offset,
                    "lag": None if each.log_end_offset < 0 else max(0, end - each.log_end_offset),
                    "caught_up_ms_ago": None if caught_up_ms < 0 else now_ms - caught_up_ms,
                    "caught_up": "never" if caught_up_ms < 0 else f"{(now_ms - caught_up_ms) / 1000:.1f} s ago",
                    "address": ",".join(addresses.get(each.replica_id, [])) or None,
                }
            )
    return {
        "leader_id": said.leader_id,
        "leader_epoch": said.leader_epoch,
        "high_watermark": said.high_watermark,
        "replicas": rows,
    }


def in_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as people are shown it."""
    shown = {}
    for name, value in row.items():
        match value:
            case bool():
                shown[name] = "yes" if value else ""
            case list():
                shown[name] = ",".join(map(str, value)) or "none"
            case _:
                shown[name] = value
    return shown
