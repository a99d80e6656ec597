"""`isthmus table`: the tables of stream apps, as they are committed in their changelogs, whether a worker runs or
not."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import typer

from ..deploy.errors import DeployError
from . import output
from .apps import AppId
from .connect import DEFAULT_BOOTSTRAP, Bootstrap, connected
from .output import JsonFlag, time_text

app = typer.Typer(no_args_is_help=True)

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table's name.")]
SHOWN_MAX = 1_000
ANSWERED = ("key", "value", "staleness_ms", "worker")
ANSWER_S = 15.0  # for a worker, which may ask another one


@app.command("list")
def list_(app_id: AppId, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: JsonFlag = False) -> None:
    """An app's tables, and how many rows they have."""
    from ..streams import admin, table_reader

    async def run() -> list[dict[str, Any]]:
        async with connected(bootstrap) as client:
            rows = []
            for name in await admin.tables(client, app_id):
                found = await table_reader.read(client, app_id, (name,))
                rows.append({"table": name, "partitions": len(found.partitions[name]), "rows": len(found.rows)})
            return rows

    output.show(asyncio.run(run()), ("table", "partitions", "rows"), as_json, f"app {app_id} has no tables here")


@app.command()
def get(
    app_id: AppId,
    table: TableName,
    key: Annotated[str, typer.Argument(help='The row\'s key: text, or JSON such as 7 or ["a",1].')],
    worker: Annotated[
        str, typer.Option("--worker", metavar="URL", help="Ask this worker of the app, or whoever it sends that to.")
    ] = "",
    max_staleness_ms: Annotated[
        int | None, typer.Option(help="With --worker: how old the answer of a standby may be; it is the owner's else.")
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Look into all partitions: for rows under other keys than records have.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """One row of a table; of one with windows, or of their results, all windows of the key. It is what is committed,
    and is looked for in the partition of records with this key; a worker knows what is not committed yet."""
    if worker:
        row = _asked(worker, table, key, max_staleness_ms)
        output.show([_shown(row, as_json)], ANSWERED, as_json, "no rows")
        return
    rows, windowed = asyncio.run(_rows(app_id, table, bootstrap, None if everywhere else key))
    found = [row for row in rows if _is(row["key"], key) or _is(row["row"].key, key)]
    if not found:
        more = "" if everywhere else " in the partition of records with this key; --all looks into all of them"
        raise DeployError(f"table {table} of app {app_id} has no row {key}{more}")
    _show(found, windowed, as_json, "no rows")


def _asked(worker: str, table: str, key: str, max_staleness_ms: int | None) -> dict[str, Any]:
    """The answer of a worker. Raises DeployError with what it says, or why it does not answer."""
    bound = {} if max_staleness_ms is None else {"max_staleness_ms": max_staleness_ms}
    url = f"{worker.rstrip('/')}/tables/{quote(table)}?{urlencode({'key': key, **bound})}"
    try:
        with urlopen(url, timeout=ANSWER_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return {each: found[each] for each in ANSWERED}
    except HTTPError as error:
        try:
            said = json.load(error)["error"]
        except (ValueError, KeyError, TypeError):
            said = f"HTTP status {error.code}"
        raise DeployError(f"{worker}: {said}") from None
    except (OSError, ValueError, KeyError) as error:
        raise DeployError(f"{worker} does not answer: {getattr(error, 'reason', error)}") from None


@app.command()
def scan(
    app_id: AppId,
    table: TableName,
    most: Annotated[
        int | None,
        typer.Option("--max", min=0, help=f"Show so many rows at most; {SHOWN_MAX}, or all with --json."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: JsonFlag = False,
) -> None:
    """All rows of a table."""
    found, windowed = asyncio.run(_rows(app_id, table, bootstrap))
    if most is None:
        most = len(found) if as_json else SHOWN_MAX  # a program cannot see that there are more
    _show(found[:most], windowed, as_json, f"table {table} has no rows")
    if len(found) > most and not as_json:
        output.out.print(f"… and {len(found) - most:,} more: --max shows them")


async def _rows(app_id: str, table: str, bootstrap: str, key: str | None = None) -> tuple[list[dict[str, Any]], bool]:
    """By their keys, and whether they are of windows. key: only what is where its row may be."""
    from ..streams import admin, table_reader
    from ..streams.errors import StreamsError

    async with connected(bootstrap) as client:
        try:
            if (names := await admin.tables(client, app_id)) and table not in names:
                raise DeployError(f"app {app_id} has no table {table} here: it has {', '.join(sorted(names))}")
            places = None
            if key is not None:
                places = table_reader.places_of(key, len(await table_reader.partitions_of(client, app_id, table)))
            found = await table_reader.read(client, app_id, (table,), partitions=places)
        except StreamsError as error:
            raise DeployError(str(error)) from error
    rows = []
    windowed = False
    for row in found.rows:
        window = table_reader.window_of(row, found.made_by.get(table, {}))
        windowed = windowed or window is not None
        shown = {"key": row.key, "value": row.value} if window is None else window._asdict()
        rows.append({**shown, "partition": row.partition, "row": row})
    rows.sort(key=lambda row: (str(row["key"]), row.get("start_ms", 0)))
    return rows, windowed


def _is(key: Any, said: str) -> bool:
    """Whether a key is what was typed."""
    from ..streams.engine.key_text import readings

    return key in readings(said) or str(key) == said


def _show(rows: Sequence[Mapping[str, Any]], windowed: bool, as_json: bool, empty: str) -> None:
    """Windows with their begin and end, as text for people."""
    shown = [_shown({name: value for name, value in row.items() if name != "row"}, as_json) for row in rows]
    if not windowed:
        output.show(shown, ("key", "value", "partition"), as_json, empty)
        return
    if not as_json:
        shown = [{**row, "start": time_text(row["start_ms"]), "end": time_text(row["end_ms"])} for row in shown]
    output.show(shown, ("key", "start", "end", "value", "partition"), as_json, empty)


def _shown(row: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """For people keys and values are one text each, as they are typed; for programs they are as JSON has them."""
    plain = {**row, "key": _plain(row["key"], as_json), "value": _plain(row["value"], as_json)}
    if as_json:
        return plain
    return {name: json.dumps(each) if isinstance(each, (list, dict)) else each for name, each in plain.items()}


def _plain(value: Any, as_json: bool) -> Any:
    """As JSON takes it: bytes that are text as text, times as ISO 8601 has them."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if as_json and isinstance(value, float) and not math.isfinite(value):
        return None  # as pages of a worker have it
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each, as_json) for each in value]
    if isinstance(value, dict):
        names = {each: each if isinstance(each, str) else str(_plain(each, as_json)) for each in value}
        return {names[each]: _plain(value[each], as_json) for each in value}
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
