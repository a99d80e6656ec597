"""One program, both imports: records, faust-streaming's own examples and programs of ours make the same of the same
input with faust-streaming and with `isthmus.streams`, but for what is listed here and in `streams-and-faust.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from integration_tests.brokers import ROOT, running_broker
from integration_tests.mirror.workers import clients
from integration_tests.others.clients import run
from integration_tests.others.environments import packages, python
from isthmus.client import Admin
from isthmus.client.admin import NewTopic

PROGRAMS = Path(__file__).parent / "beside_faust"
PROGRAM = PROGRAMS / "records.py"
WITHIN_S = 90.0

DIFFERENT = {  # by case: faust's outcome and ours
    # Names that a class has no field for are not kept as attributes.
    "read": ("sku='s', n=1, zz=1", "sku='s', n=1>"),
    # What cannot be decoded is a ValueError, whatever it is.
    **dict.fromkeys(
        (
            *("a field is missing", "no object", "decimal x", "decimal None"),
            *(f"coerced{of} {field} None" for of in ("", " of data") for field in "ifp"),
            *(f"coerced of data p {value!r}" for value in ("x", "")),
            *(f"coerced p {value!r}" for value in ("x", "")),
        ),
        ("another error", "ValueError"),
    ),
    # None is not the text 'None'.
    "coerced s None": ("'None'", "ValueError"),
    "coerced of data s None": ("'None'", "ValueError"),
}


def test_records_beside_faust_s(programs: Path, tmp_path: Path) -> None:
    theirs = json.loads(run([python("faust", programs), PROGRAM, "faust"], tmp_path))
    ours = json.loads(run([sys.executable, PROGRAM, "isthmus"], tmp_path))
    assert list(ours) == list(theirs) and len(ours) > 150
    different = {name: (theirs[name], ours[name]) for name in ours if theirs[name] != ours[name]}
    assert set(different) == set(DIFFERENT), different
    for name, (their_part, our_part) in DIFFERENT.items():
        assert their_part in theirs[name] and our_part in ours[name], (name, different[name])


def test_names_are_those_that_are_accounted_for(programs: Path, tmp_path: Path) -> None:
    """`tests/streams/api/test_absent.py` holds that each is there or says what to use."""
    found = json.loads(run([python("faust", programs), PROGRAMS / "names.py"], tmp_path))
    assert found == json.loads((ROOT / "tests/streams/api/faust_names.json").read_text())


def test_times_of_crontabs_beside_faust_s(programs: Path, tmp_path: Path) -> None:
    program = PROGRAMS / "crontimes.py"
    theirs = json.loads(run([python("faust", programs), program, "faust"], tmp_path))
    ours = json.loads(run([sys.executable, program, "isthmus"], tmp_path))
    assert list(theirs) == list(ours) and len(ours) > 250
    different = {name: (theirs[name], ours[name]) for name in ours if theirs[name] != ours[name]}
    changed = different.pop("30 18 * * * in Europe/Berlin from 2024-03-30T22:59:59.999")
    # On the day on which clocks change Faust runs an hour early, and again.
    assert [[each[:16] for each in side] for side in changed] == [
        ["2024-03-31T15:30", "2024-03-31T16:30"],
        ["2024-03-31T16:30", "2024-04-01T16:30"],
    ]
    # A year is refused, and what begins and ends with the same value is that value; for Faust it is all of them.
    assert {name.partition(" in ")[0] for name in different} == {"* * * * * * 2030", "1-1 * * * *"}


class Example(NamedTuple):
    """A program: its file, the topics that it reads, what the host calls, when it is done (see `host.py`).

    different: what of its outcome differs (`lines`, `tables`, `table NAME`), and why; that is not
    compared. without: a pattern of lines that are not."""

    file: str
    topics: Mapping[str, int]
    jobs: list[list[Any]]
    done: str
    patches: Mapping[str, str] = {}
    different: Mapping[str, str] = {}
    without: str = "$^"


CLOSED = {"tables": "windows are closed by the wall clock, or by event time"}
DRAWN = {"lines": "tables are drawn with other lines"}
EXAMPLES = {
    "hello": Example("hello_world.py", {"greetings": 2}, [["produce"]], "len(lines) >= 100"),
    "leader": Example("leader.py", {}, [["publish_greetings"]], "len(lines) >= 2"),
    "tz_unaware": Example(
        "crontab/tz_unaware.py", {"tz_unaware_topic": 1}, [["publish_every_minute"]], "len(lines) >= 3"
    ),
    "tz_aware": Example(
        "crontab/tz_aware.py", {"tz_aware_topic": 1}, [["publish_at_8_20_pm_pacific"]], "len(lines) >= 3"
    ),
    "service": Example("advanced/service.py", {}, [["producer"]], "len(lines) >= 1"),
    "rpc": Example("advanced/rpc.py", {"RPC__pow": 2, "RPC__mul": 2}, [["_sender"], ["x100", 5]], "len(lines) >= 9"),
    "withdrawals": Example(
        "withdrawals.py",
        {"withdrawals": 4},
        [
            ["produce", 0, 200],
            ["agent:track_country_withdrawal", "[(w.user, w) for w in m.generate_withdrawals(50)]"],
        ],
        "len(t['user_to_total']) >= 160 and len(t['country_to_total']) >= 3",
        different={"table country_to_total": "group_by keeps the time of records"},
    ),
    "words": Example(
        "word_count.py",
        {"posts": 8},
        [["sender"]],
        "sum(t['word_counts'].values()) >= 4_000",
        different={"lines": "they say how far it has come"},
    ),
    "sets": Example(
        "tableofset.py",
        {"people_joining2": 4, "people_leaving2": 4},
        [["joining", "a", "x"], ["joining", "a", "y"], ["joining", "b", "z"], ["leaving", "c", "q"]],
        "len(t['people'].get('a', [])) == 2 and len(lines) >= 8",
        different={"tables": "a set without members has no row"},
    ),
    "queue": Example("task_queue.py", {"tasks": 2}, [["_send_tasks"]] * 3, "len(lines) >= 6"),
    "tumbling": Example(
        "windowing/tumbling.py", {"tumbling_topic": 8}, [["publish_every_2secs"]] * 5, "len(lines) >= 25"
    ),
    "hopping": Example("windowing/hopping.py", {"hopping_topic": 8}, [["publish_every_2secs"]] * 5, "len(lines) >= 25"),
    "hopping_2": Example(
        "windowing/hopping_2.py",
        {"raw-event": 1},
        [["produce"]] * 5,
        "len(lines) >= 5",
        {},
        CLOSED,
        "processing window",
    ),
    "aggregation": Example(
        "windowed_aggregation.py",
        {"raw-event": 1, "agg-event": 1},
        [["produce"]] * 5,
        "len(lines) >= 1 or len(t['tumbling_table']) >= 1",
        different=dict.fromkeys(("lines", "tables"), CLOSED["tables"]),
    ),
    "bound": Example("bound_agent.py", {}, [["action_generator"]], "len(lines) >= 88"),
    "scores": Example(
        "kubernetes/consumer/consumer.py",
        {"test": 8},
        [["topic:test_topic", "[('score', m.Score(index=i, value=i)) for i in range(20)]"]],
        "len(lines) >= 20",
        different=dict.fromkeys(("lines", "tables"), "a row that is written for several partitions is one in each"),
    ),
    "isolated": Example(
        "advanced/isolated_partitions_crashing.py",
        {"withdrawals129": 4},
        [["produce", 0, 50]],
        "sum(t['withdrawal-counts'].values()) >= 50",
    ),
    "concurrency": Example(
        "concurrency.py",
        {"concurrency": 2},
        [["producer"]],
        "len(lines) >= 200",
        {
            "range": "lambda n: range(200)",
            "aiohttp": "SimpleNamespace(ClientSession=lambda: SimpleNamespace(get=reached))",
        },
    ),
    "table": Example(
        "tabletest.py",
        {"countstopic": 4},
        [["produce"]],
        f"sum(t['counts'].values()) >= {4 * sum(range(30))}",
        {"ITERATIONS": "30"},
        DRAWN,
    ),
}
NOT_HERE = {  # the others, and why
    "livecheck.py": "there is no LiveCheck",
    **dict.fromkeys(("fastapi_example.py", "fastapi_project", "django"), "`test_beside_faust_asgi.py` runs them"),
    "kubernetes/producer": "it does not use faust",
}


def outcomes(programs: Path, folder: Path, given: Mapping[str, Example], root: Path) -> Iterator[dict[str, Any]]:
    """Of faust-streaming and of this package, each with a broker of its own, side by side."""
    settings = {
        "packages": str(packages("faust", programs)),
        "base": int(time.time()) // 60 * 60,
        "within": WITHIN_S,
        "programs": {
            name: {"file": str(root / each.file), "jobs": each.jobs, "done": each.done, "patches": dict(each.patches)}
            for name, each in given.items()
        },
    }
    topics = [
        NewTopic(f"{name}.{topic}", partitions, -1, {})
        for name, each in given.items()
        for topic, partitions in each.topics.items()
    ]

    async def create(bootstrap: str) -> None:
        async with clients(bootstrap) as (client,):
            await Admin(client).create_topics(topics)

    sides = {"faust": python("faust", programs), "isthmus": Path(sys.executable)}
    at_once = {"group.initial.rebalance.delay.ms": 0}
    with running_broker(folder / "one", at_once) as one, running_broker(folder / "other", at_once) as other:
        hosts = []
        for (side, interpreter), broker in zip(sides.items(), (one, other), strict=True):
            asyncio.run(create(broker.bootstrap))
            environment = {"BROKER_URL": f"kafka://{broker.bootstrap}", "PYTHONHASHSEED": "0"}
            (folder / side).mkdir()
            hosts.append(
                subprocess.Popen(
                    [interpreter, PROGRAMS / "host.py", side, json.dumps(settings)],
                    env={**os.environ, **environment}, cwd=folder / side, stdout=subprocess.PIPE, text=True,
                    stderr=(folder / f"{side}.log").open("w"),
                )
            )  # fmt: skip
        for side, host in zip(sides, hosts, strict=True):
            said, _ = host.communicate(timeout=WITHIN_S + 60)
            made = [line for line in said.splitlines() if line.startswith("MADE ")]
            assert made, (folder / f"{side}.log").read_text()[-3000:]
            yield json.loads(made[0].removeprefix("MADE "))


def differences(programs: Path, folder: Path, given: Mapping[str, Example], root: Path) -> dict[Any, Any]:
    theirs, ours = outcomes(programs, folder, given, root)
    assert not [each["error"] for each in theirs.values() if each["error"]], "faust-streaming itself fails"
    return {
        (name, part): [of[name][part] for of in (theirs, ours)]
        for name, each in given.items()
        for part in ("error", "lines", "tables")
        if part not in each.different and _left(theirs[name][part], each) != _left(ours[name][part], each)
    }


def _left(made: Any, example: Example) -> Any:
    """What is compared of it."""
    if isinstance(made, dict):
        return {table: rows for table, rows in made.items() if f"table {table}" not in example.different}
    return [line for line in made if not re.search(example.without, line)] if isinstance(made, list) else made


def test_every_example_of_faust_is_known(examples: Path) -> None:
    files = {str(each.relative_to(examples)) for each in examples.rglob("*.py") if each.name != "__init__.py"}
    known = {each.file for each in EXAMPLES.values()}
    assert {each for each in files - known if not each.startswith(tuple(NOT_HERE))} == set()
    assert known <= files


OWN = {
    "own": Example(
        "own.py",
        dict.fromkeys(
            (
                *("orders", "plain", "taken", "bytes", "reversed", "schema", "headed", "asked", "through", "echo"),
                *("echoed", "sunk", "sink", "windowed", "own-through"),
            ),
            4,
        ),
        [["send"], ["windows", 1_700_000_000], ["asking"]],
        "len(lines) >= 79",
    )
}


def test_what_no_example_has_is_the_same(programs: Path, tmp_path: Path) -> None:
    assert differences(programs, tmp_path, OWN, PROGRAMS) == {}


CLOSING = {
    name: Example(
        "closing.py",
        {"events": 4},
        [
            ["send", partitions],
            *([f"close:{table}", f"len(lines) >= {24 + partitions}"] for table in ("sums", "hops", "lists")),
            ["late"],
        ],
        f"sum(each.startswith('event') for each in lines) >= {25 + partitions}"
        " and not any(key[0] in 'bcd' for table in ('sums', 'hops', 'lists') for key in t[table])",
    )
    for name, partitions in (("one", 1), ("spread", 4))
}


def test_windows_that_close_are_told_with_the_same_values(programs: Path, tmp_path: Path) -> None:
    theirs, ours = outcomes(programs, tmp_path, CLOSING, PROGRAMS)
    assert not [of[name]["error"] for of in (theirs, ours) for name in CLOSING if of[name]["error"]]

    def told(of: dict[str, Any], name: str) -> list[str]:
        return [line for line in of[name]["lines"] if not line.startswith("length ")]

    assert told(theirs, "one") == told(ours, "one")
    lengths = [{line for line in of["one"]["lines"] if line.startswith("length ")} for of in (theirs, ours)]
    assert lengths == [{"length 9.9"}, {"length 10.0"}]
    # Faust remembers one time for all partitions, up to which windows have closed: others are removed and not told.
    closed = [line for line in told(ours, "one") if not line.startswith("event")]
    assert [line for line in told(ours, "spread") if not line.startswith("event")] == closed
    lost = set(told(ours, "spread")) - set(told(theirs, "spread"))
    assert len(lost) > 10 and set(told(theirs, "spread")) < set(told(ours, "spread"))
    # What comes late makes a row again, or is left out.
    tables = [of["one"]["tables"] for of in (theirs, ours)]
    assert tables[0]["sums"].pop("a from 1700000000.0") == 100
    assert tables[0] == tables[1] and len(ours["one"]["tables"]["sums"]) == 1


def test_examples_of_faust_make_the_same(programs: Path, examples: Path, tmp_path: Path) -> None:
    assert differences(programs, tmp_path, EXAMPLES, examples) == {}
