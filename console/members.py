"""`isthmus broker unregister`, `isthmus quorum remove`, `isthmus cluster features`: who belongs to a cluster, and the
levels at which its members work together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer

from ..client import Admin
from ..client.admin import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from ..deploy.errors import DeployError
from . import output
from .clusters import quorum_told
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag

features = typer.Typer(no_args_is_help=True)
unregister_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

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
        await admin.remove_voter(node)
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
