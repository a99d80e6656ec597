"""`isthmus broker unregister`, `isthmus quorum add` and `remove`, `isthmus cluster features`: who belongs to a cluster,
and the levels at which its members work together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer

from ..client import Admin
from ..client.admin import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from ..client.connection import connect
from ..client.errors import ClientError
from ..deploy.addresses import MAX_PORT
from ..deploy.errors import DeployError
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import describe_cluster
from ..protocol.primitives import uuid_from_str
from . import output
from .clusters import quorum_told
from .connect import DEFAULT_BOOTSTRAP, START_TIMEOUT_MS, Bootstrap, connected
from .output import JsonFlag

features = typer.Typer(no_args_is_help=True)
unregister_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

ADD_TIMEOUT_MS = 10_000  # for the leader to reach the node and commit the change
KRAFT_VERSION = "kraft.version"
CONTROLLERS = 2  # a type of endpoints (KIP-919)
KEEPS_UP_MS = 10_000  # a voter that was caught up within this time is there; it fetches twice a second or more often
COLUMNS = ("feature", "finalized", "lowest", "highest")

Levels = Annotated[list[str], typer.Argument(metavar="FEATURE=LEVEL...", help="Such as group.version=0.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only ask whether the cluster could.")]

T = TypeVar("T")


@unregister_app.command()
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", help="Id of the broker.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Remove a broker that has stopped and will not come back from the cluster. Drain it before: a partition whose
    replicas are all on it has no leader any more."""

    async def leave(admin: Admin) -> None:
        if reason := why_not_unregistered((await admin.cluster()).brokers, broker):
            raise DeployError(reason)
        await admin.unregister_broker(broker)

    _ask(bootstrap, leave)
    output.done(f"broker {broker} does not belong to the cluster any more", {"unregistered": broker}, as_json)


def why_not_unregistered(brokers: Iterable[Any], broker: int) -> str:
    """Why a broker is to stay: it lives, and would register again. brokers: DescribeClusterBroker of all. Empty if
    nothing is against it; whether it is registered is for the cluster to say."""
    if not any(each.broker_id == broker and not each.is_fenced for each in brokers):
        return ""
    return (
        f"broker {broker} runs, or is not missed yet, and would be back at once: move its partitions off it by "
        f"`isthmus broker drain {broker}`, and stop it first"
    )


def add(
    node: Annotated[int, typer.Argument(metavar="ID", help="Id of the node.")],
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint",
            metavar="[NAME://]HOST:PORT",
            help="Its listener for controllers, as others reach it. The name is by default that of the voters'.",
        ),
    ],
    directory: Annotated[
        str,
        typer.Option(
            "--directory-id", metavar="ID", help="directory.id of its meta.properties, if it is to be checked."
        ),
    ] = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Make a controller that follows the metadata quorum one of its voters (KIP-853).

    It must run, with the role controller, and have all of the metadata.
    """
    listener, host, port = parsed_endpoint(endpoint)

    async def join(admin: Admin) -> str:
        levels = await admin.features()
        if KRAFT_VERSION not in levels or levels[KRAFT_VERSION].finalized < 1:
            raise DeployError(FIXED_VOTERS)
        said, nodes = await admin.describe_quorum()
        quorum = quorum_told(said, nodes)
        if reason := why_not_added(quorum, node, f"{host}:{port}", directory):
            raise DeployError(reason)
        await check_listener(f"{host}:{port}", node, (await admin.cluster()).cluster_id)
        names = [each.name for voter in nodes for each in voter.listeners]
        row = observer(quorum, node)
        where = (listener or names[0], host.strip("[]"), port)
        try:
            await admin.add_voter(node, uuid_from_str(row["directory_id"]), [where], ADD_TIMEOUT_MS)
        except KafkaError as error:
            if error.code != ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise DeployError(f"{error.message}; node {quorum['leader_id']} leads, and tries {endpoint}") from error
        return str(row["directory_id"])

    found = _ask(bootstrap, join)
    output.done(f"node {node} votes", {"added": node, "directory_id": found}, as_json)


FIXED_VOTERS = (
    "kraft.version is 0: the voters of this cluster are those of controller.quorum.voters on each node, for good. A "
    "cluster that `isthmus up` makes anew has voters that can be changed; a mirror carries the records over"
)


def parsed_endpoint(text: str) -> tuple[str, str, int]:
    """(name of the listener, host, port); the name may be empty. Raises DeployError."""
    name, mark, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT or (mark and not name):
        raise DeployError(f"--endpoint {text}: expected [NAME://]HOST:PORT, such as CONTROLLER://127.0.0.1:9093")
    return name.upper(), host, int(port)


async def check_listener(address: str, node: int, cluster_id: str) -> None:
    """The leader asks a new voter there for nothing that only a controller would answer. Raises DeployError: nothing
    answers there, it is no listener for controllers, or one of another cluster."""
    connection = None
    try:
        connection = await connect(address, "isthmus-cli", START_TIMEOUT_MS)
        request = describe_cluster.Request(endpoint_type=CONTROLLERS)
        answer = await connection.request(describe_cluster.API, request, START_TIMEOUT_MS)
    except ClientError as error:
        raise DeployError(
            f"node {node} is not reached at {address}, where all voters must reach it: {error}"
        ) from error
    finally:
        if connection is not None:
            connection.close()
    if answer.error_code:
        why = answer.error_message or KafkaError.of(answer.error_code).name
        raise DeployError(
            f"{address} is no listener for controllers ({why}): see controller.listener.names of node {node}"
        )
    if answer.cluster_id != cluster_id:
        raise DeployError(f"{address} is a controller of cluster {answer.cluster_id}, not of {cluster_id}")


def observer(quorum: Mapping[str, Any], node: int) -> Mapping[str, Any]:
    """Of the directories that a node has had, the one that was last caught up. quorum: `quorum_told`. Raises KeyError:
    there is none."""
    found = [each for each in quorum["replicas"] if each["role"] == "observer" and each["node_id"] == node]
    if not found:
        raise KeyError(node)
    return min(found, key=lambda row: (row["caught_up_ms_ago"] is None, row["caught_up_ms_ago"]))


def why_not_added(quorum: Mapping[str, Any], node: int, address: str, directory: str) -> str:
    """Why an observer is no voter yet: the leader would count on what it has. quorum: `quorum_told`. address: HOST:PORT
    that it is said to have. directory: the id that it is to have, or empty. Empty if nothing is against it; whether it
    is reached at its address is for the leader to say."""
    voters = [each for each in quorum["replicas"] if each["role"] == "voter"]
    ids = ", ".join(str(each["node_id"]) for each in voters)
    for each in voters:
        if each["node_id"] == node:
            return (
                f"node {node} is a voter already, with the directory {each['directory_id']}: the voters are {ids}; one "
                f"that has lost its disk is taken out first, `isthmus quorum remove {node}`"
            )
        if address in (each["address"] or "").split(","):
            return (
                f"{address} is where node {each['node_id']} is reached: name node {node}'s own listener for controllers"
            )
    try:
        row = observer(quorum, node)
    except KeyError:
        others = sorted({each["node_id"] for each in quorum["replicas"] if each["role"] == "observer"})
        seen = f"those that do are {', '.join(map(str, others))}" if others else "none does"
        return (
            f"node {node} does not follow the metadata quorum, {seen}: start it with process.roles=broker,controller "
            "and the controllers' addresses in controller.quorum.bootstrap.servers"
        )
    if directory and directory != row["directory_id"]:
        return f"node {node} has the directory {row['directory_id']}, not {directory}: check its meta.properties"
    if not _keeps_up(row):
        return (
            f"node {node} is {row['lag']} records behind the leader, and was caught up {row['caught_up']}: wait until "
            "it has all of the metadata, as `isthmus quorum status` tells"
        )
    return ""


def remove(
    node: Annotated[int, typer.Argument(metavar="ID", help="Id of the node.")],
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if no majority of those left keeps up.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Take a controller that has stopped out of the voters of the metadata quorum (KIP-853).

    More than half of the voters must run, without it and with it: else no controller could be elected any more.
    """

    async def leave(admin: Admin) -> None:
        said, nodes = await admin.describe_quorum()
        if not unsafe and (reason := why_not_removed(quorum_told(said, nodes), node)):
            raise DeployError(reason)
        try:
            await admin.remove_voter(node)
        except KafkaError as error:  # it may be registered all the same
            if error.code != ErrorCode.VOTER_NOT_FOUND or not await admin.unregister_controller(node):
                raise
        else:
            await admin.unregister_controller(node)

    _ask(bootstrap, leave)
    output.done(f"node {node} does not vote any more", {"removed": node}, as_json)


def why_not_removed(quorum: Mapping[str, Any], node: int) -> str:
    """Why a voter is to stay: no majority would be left that keeps up with the leader. quorum: `quorum_told`. Empty if
    nothing is against it; whether it is a voter is for the cluster to say."""
    voters = {each["node_id"]: each for each in quorum["replicas"] if each["role"] == "voter"}
    left = {each: row for each, row in voters.items() if each != node}
    if node not in voters:
        return ""
    if not left:
        return f"node {node} is the only voter: without it there would be no controller; add another one first"
    away = [each for each, row in left.items() if not row["leader"] and not _keeps_up(row)]
    if 2 * (len(left) - len(away)) > len(left):
        return ""
    told = ", ".join(f"node {each} was caught up {left[each]['caught_up']}" for each in away)
    return (
        f"without node {node}, {len(left) - len(away)} of {len(left)} voters would keep up with the leader, no "
        f"majority ({told}): start those, or remove one of them instead; --unsafe removes it nevertheless"
    )


def _keeps_up(row: Mapping[str, Any]) -> bool:
    ago_ms = row["caught_up_ms_ago"]
    return ago_ms is not None and ago_ms <= KEEPS_UP_MS


@features.command("list")
def list_features(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """The finalized level of each feature, and the levels that the broker which answers works at."""
    found = _ask(bootstrap, lambda admin: admin.features())
    rows = [
        {"feature": name, "finalized": each.finalized, "lowest": each.lowest, "highest": each.highest}
        for name, each in found.items()
    ]
    output.show(rows, COLUMNS, as_json, "no features")


@features.command()
def upgrade(
    levels: Levels, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False
) -> None:
    """Finalize higher levels, if every member works at them."""
    _update(levels, UPGRADE, dry_run, bootstrap, as_json)


@features.command()
def downgrade(
    levels: Levels,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if metadata is lost by it.")] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """Finalize lower levels."""
    _update(levels, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run, bootstrap, as_json)


def _update(texts: Sequence[str], kind: int, dry_run: bool, bootstrap: str, as_json: bool) -> None:
    wanted = dict(map(parsed, texts))
    _ask(bootstrap, lambda admin: admin.update_features(wanted, kind, dry_run))
    said = ", ".join(f"{name} {level}" for name, level in wanted.items())
    could = "the cluster could finalize" if dry_run else "finalized:"
    output.done(f"{could} {said}", {"levels": wanted, "done": not dry_run}, as_json)


def parsed(text: str) -> tuple[str, int]:
    name, mark, level = text.partition("=")
    if not mark or not name or not (level.isascii() and level.isdigit()):
        raise DeployError(f"'{text}' is not FEATURE=LEVEL, such as group.version=0; levels are numbers")
    return name, int(level)


def _ask(bootstrap: str, ask: Callable[[Admin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with connected(bootstrap) as client:
            return await ask(Admin(client))

    return asyncio.run(run())
