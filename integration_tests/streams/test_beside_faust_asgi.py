"""faust-streaming's examples with FastAPI and Django, run as their users do, answer and make the same with
`isthmus.streams`. Each has a broker of its own, since all have the same topics."""

from __future__ import annotations

import functools
import http.client
import json
import re
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from integration_tests.brokers import running_broker
from integration_tests.clients.records import create_topics
from integration_tests.others.clients import run
from integration_tests.others.environments import packages, python
from integration_tests.others.processes import produce, running, until
from integration_tests.peers.peers import free_ports

AT_ONCE = {"group.initial.rebalance.delay.ms": 0}
LAUNCHED = Path(__file__).parent / "beside_faust" / "launched.py"


class Way(NamedTuple):
    """To run an example: the folder of it, what is run there (`python -m …`; PORT: where it is to listen), and text of
    it that is replaced."""

    folder: str
    command: str
    replaced: tuple[str, str] = ("", "")


class Program:
    """A way, as the user of one of the two has it: `faust` or `isthmus`."""

    def __init__(self, side: str, way: Way, examples: Path, programs: Path, folder: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        [self.port] = free_ports(1)
        shutil.copytree(examples, folder / side)
        self.folder = folder / side / way.folder
        for path in self.folder.rglob("*.py"):
            text = path.read_text().replace("localhost:9092", bootstrap)
            text = text.replace(way.replaced[0], way.replaced[1].replace("PORT", str(self.port)))
            if side == "isthmus":
                text = re.sub(r"^import faust$", "import isthmus.streams as faust", text, flags=re.MULTILINE)
                text = re.sub(r"^from faust\b", "from isthmus.streams", text, flags=re.MULTILINE)
            path.write_text(text)
        if side == "faust":
            self.python = [str(python("faust", programs)), "-m"]
        else:
            self.python = [sys.executable, str(LAUNCHED), str(packages("faust", programs))]
        module = "faust" if side == "faust" else "isthmus.streams"
        self.command = way.command.replace("FAUST", module).replace("PORT", str(self.port)).split()
        self.log = self.folder / "program.log"

    def asked(self, path: str) -> tuple[int, str | None, Any]:
        """The answer: its status, where it leads, and what is in it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, answer.headers["Location"], json.loads(text) if is_json else text

    def answers(self) -> bool:
        return bool(self.asked("/"))

    def has_rows(self) -> bool:
        """Of the page, and of the timer."""
        return len(self.asked("/table")[2]) >= 2

    def until(self, holds: Callable[[], bool]) -> None:
        def does() -> bool:
            try:
                return holds()
            except OSError:  # it does not listen yet
                return False

        until(does, lambda: self.log.read_text()[-3000:])


@contextmanager
def both(
    way: Way, topic: str, partitions: int, examples: Path, programs: Path, folder: Path,
    environment: Mapping[str, str] = {}, before: str = "",
) -> Iterator[list[Program]]:  # fmt: skip
    """Programs that answer. topic: one that others have made. before: another module that is run first."""
    environment = {"PYTHONUNBUFFERED": "1", **environment}
    with ExitStack() as ends:
        made = []
        for side in ("faust", "isthmus"):
            broker = ends.enter_context(running_broker(folder / f"broker of {side}", AT_ONCE))
            create_topics(broker.bootstrap, [topic], partitions)
            program = Program(side, way, examples, programs, folder, broker.bootstrap)
            made.append(program)
            if before:
                set_to = [f"{name}={value}" for name, value in environment.items()]
                run(["env", *set_to, *program.python, *before.split()], program.folder)
            ends.enter_context(running([*program.python, *program.command], program.folder, "program", environment))
        for program in made:
            program.until(program.answers)
        yield made
    for program in made:
        assert "Application shutdown complete" in program.log.read_text()


# --- FastAPI ----------------------------------------------------------------------------------------

PAGES = ("/", "/items/3?q=x", "/items/x", "/nowhere", "/metrics", "/produce")


def test_an_example_with_fastapi(examples: Path, programs: Path, tmp_path: Path) -> None:
    way = Way(".", "uvicorn fastapi_example:api --port PORT")
    with both(way, "greetings", 4, examples, programs, tmp_path) as made:
        answers = [[each.asked(path) for path in PAGES] for each in made]
        for each in made:
            each.until(functools.partial(has_greeted_twice, each.log))
    assert answers[0] == answers[1]


def has_greeted_twice(log: Path) -> bool:
    """For the page, and for the timer."""
    said = Counter(re.findall("^hello ([0-9]+)$", log.read_text(), re.MULTILINE))
    return len(said) == 100 and min(said.values()) >= 2


@pytest.mark.parametrize(
    "way",
    [
        Way("fastapi_project", "uvicorn main:api --port PORT"),
        Way("fastapi_project", "FAUST -A worker_main worker -l info", ("port=8000", "port=PORT")),
        Way("fastapi_project", "FAUST -A worker_main worker -l info --with-web --web-port PORT", (", port=8000", "")),
    ],
    ids=["server", "worker", "worker's own port"],
)
def test_a_project_with_fastapi(way: Way, examples: Path, programs: Path, tmp_path: Path) -> None:
    with both(way, "greetings", 1, examples, programs, tmp_path) as made:
        answers = [[each.asked(path) for path in PAGES] for each in made]
        for each in made:
            each.until(each.has_rows)
        tables = [[list(row.values()) for row in each.asked("/table")[2][:2]] for each in made]
    assert answers[0] == answers[1]
    assert tables == [[[["hello world"]]] * 2] * 2


# --- Django -----------------------------------------------------------------------------------------


def test_a_project_with_django(examples: Path, programs: Path, tmp_path: Path) -> None:
    """Agents of installed apps are found, and write to its database. What the example does with it, Django refuses in
    async code unless it is told otherwise; `disable_account` fails at its model, of which Django cannot read a row."""
    way = Way("django", "uvicorn proj.asgi:application --port PORT")
    django = {"DJANGO_SETTINGS_MODULE": "proj.settings", "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}
    environment = {**django, "APP_WEB_ENABLED": "0"}  # else both would have the same port
    record = {"name": "ann", "score": 1.5, "active": True, "__faust": {"ns": "accounts.agents.AccountRecord"}}
    topic = "django-proj-accounts.agents.add_account"
    with both(way, topic, 8, examples, programs, tmp_path, environment, before="django migrate") as made:
        answers = [each.asked("/admin/") for each in made]
        for each in made:
            produce(each.bootstrap, topic, [(None, json.dumps(record).encode())])
            each.until(functools.partial(has_account, each.folder))
    assert answers[0] == answers[1] == (302, "/admin/login/?next=/admin/", "")


def has_account(project: Path) -> bool:
    with sqlite3.connect(project / "db.sqlite3") as database:
        rows = database.execute("select name, score, active from accounts_account").fetchall()
    return rows == [("ann", 1.5, 1)]
