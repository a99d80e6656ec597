"""What a worker has beside its agents is the same of one program with faust-streaming and with `isthmus.streams`, but
for what is listed here and in `streams-and-faust.md`. Each is run as its users do."""

from __future__ import annotations

import functools
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from integration_tests.brokers import die_with_parent
from integration_tests.mirror.workers import ENVIRONMENT, clients, run
from integration_tests.others.environments import python
from isthmus.client import Admin
from isthmus.client.admin import NewTopic

PROGRAMS = Path(__file__).parent / "beside_faust"
PARTITIONS = 4
READY_S = 60.0


class Side(NamedTuple):
    """One of the two: command: how a program is run. file: the program, as its user writes it for this side."""

    name: str
    interpreter: Path
    file: Path
    environment: Mapping[str, str]
    folder: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.interpreter, self.file, *arguments], env=self.environment, cwd=self.folder, capture_output=True,
            text=True, timeout=READY_S,
        )  # fmt: skip


def sides(program: str, topics: Sequence[str], broker: Any, programs: Path, folder: Path) -> list[Side]:
    source = (PROGRAMS / program).read_text()
    ours = re.sub(r"^import faust$", "import isthmus.streams as faust", source, flags=re.MULTILINE)
    ours = re.sub(r"^from faust\b", "from isthmus.streams", ours, flags=re.MULTILINE)
    found = []
    for name, interpreter, text in (
        ("faust", python("faust", programs), source),
        ("isthmus", Path(sys.executable), ours),
    ):
        own = folder / name
        own.mkdir()
        (own / program).write_text(text)
        app = f"{program.removesuffix('.py')}-{name}"
        run(_create(broker.bootstrap, [f"{app}.{topic}" for topic in topics]))
        environment = {**ENVIRONMENT, "APP_NAME": app, "APP_BROKER": f"kafka://{broker.bootstrap}"}
        found.append(Side(name, interpreter, own / program, environment, own))
    return found


async def _create(bootstrap: str, topics: Sequence[str]) -> None:
    async with clients(bootstrap) as (client,):
        await Admin(client).create_topics([NewTopic(each, PARTITIONS, -1, {}) for each in topics])


class Worker:
    """One of a side, with a web server."""

    def __init__(self, side: Side) -> None:
        self.log_path = side.folder / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        at = ["--web-port", str(self.port), "--web-bind", "127.0.0.1", "--web-host", "127.0.0.1"]
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [side.interpreter, side.file, "worker", "-l", "info", *at], env=side.environment, cwd=side.folder,
                stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip

    def until(self, each: Asked, found: Callable[[Answer], bool]) -> None:
        """Ask again until the answer is so."""
        deadline = time.monotonic() + READY_S
        answer: Any = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log_path.read_text()[-3000:]
            try:
                answer = asked(self.port, each)
                if found(answer):
                    return
            except OSError as error:
                answer = error
            time.sleep(0.1)
        raise AssertionError(f"{each}: {answer}\n{self.log_path.read_text()[-3000:]}")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def workers(of: Sequence[Side]) -> Iterator[list[Worker]]:
    with ExitStack() as ends:
        made = []
        for side in of:
            made.append(Worker(side))
            ends.callback(made[-1].end)
        yield made


# --- Pages ------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.method, self.path, self.body)))


class Answer(NamedTuple):
    """headers: those that are compared. body: what JSON says, or text."""

    status: int
    reason: str
    headers: dict[str, str]
    body: Any


HEADERS = ("Content-Type", "Allow", "Location", "X-Mine")
VALUES = (
    *("record", "records", "datetime", "datetime of UTC", "date", "decimal", "uuid", "bytes", "tuple", "set", "enum"),
    *("numbers as keys", "object"),
)
RAISED = (
    *("web", "redirect", "forbidden", "gone", "crash", "nothing", "ServerError", "ValidationError", "ParseError"),
    *("NotAuthenticated", "PermissionDenied", "NotFound", "no such error"),
)
ASKED = [
    *(Asked("GET", each) for each in ("/text", "/html", "/bytes", "/png", "/csv", "/json", "/json/own-type")),
    *(Asked("GET", each) for each in ("/error", "/notfound", "/nowhere", "/text/", "//text", "/query", "/twice")),
    *(Asked("GET", f"/value/{quote(each)}") for each in VALUES),
    *(Asked("GET", f"/path/{each}") for each in ("a%20b%2Fc/12/", "a/x/", "a/12")),
    Asked("GET", "/query?a=1&a=2&b=%C3%A4"),
    Asked("GET", "/seen", {"X-Sent": "yes", "Cookie": "c=1; d=2"}),
    Asked("GET", "/thing/1"),
    Asked("GET", "/thing/9"),
    Asked("HEAD", "/thing/1"),
    Asked("HEAD", "/thing/9"),
    Asked("POST", "/thing/2", {"Content-Type": "application/json"}, '{"name": "two"}'),
    Asked("GET", "/thing/2"),
    Asked("POST", "/thing/2", {}, "no JSON"),
    Asked("PUT", "/thing/1", {}, "body ä"),
    Asked("PATCH", "/thing/1", {}, "body"),
    Asked("DELETE", "/thing/2"),
    *(Asked(method, "/thing/1") for method in ("OPTIONS", "SEARCH", "PROPFIND")),
    *(Asked(method, "/text") for method in ("HEAD", "POST", "DELETE", "OPTIONS")),
    *(Asked(method, "/options") for method in ("HEAD", "GET", "OPTIONS")),
    Asked("HEAD", "/csv"),
    Asked("HEAD", "/form"),
    Asked("GET", "/form"),
    Asked("POST", "/form", {"Content-Type": "application/x-www-form-urlencoded"}, "a=1&b=x+y"),
    *(Asked("POST", "/point", {}, each) for each in ('{"x": 1, "y": 2}', '{"y": 2}', "no", "[1]")),
    *(Asked("GET", f"/raise/{quote(each)}") for each in RAISED),
    *(Asked("GET", f"/words/{each}") for each in ("", "fox/", "cow/", "by-query/of?word=fox", "by-query/of")),
    *(Asked("GET", f"/words/{each}") for each in ("by-key/of", "by-topic/fox")),
    *(Asked("GET", f"/files/{each}") for each in ("data.txt", "none.txt", "")),
    *(Asked("GET", f"/table/{each}") for each in ("", "counts/", "counts/fox/", "counts/none/", "none/", "none/fox/")),
    *(Asked("GET", f"/router/{each}") for each in ("", "topics", "counts/", "counts/fox/", "none/", "none/fox/")),
    *(Asked("GET", each) for each in ("/", "/metrics", "/health")),
]
# Faust's answer and ours, by request: statuses, or parts of what is in the body.
OTHER_STATUS = {
    # What a request lacks is its fault.
    'POST /point {"y": 2}': (500, 400),
    "POST /point no": (500, 400),
    "POST /point [1]": (500, 400),
    "GET /words/by-query/of": (500, 400),
    # A table that is not there is not unavailable.
    "GET /table/none/fox/": (503, 404),
    "GET /router/none/fox/": (503, 404),
    "GET /router/none/": (500, 404),
    # Of this package alone.
    "GET /metrics": (404, 200),
    "GET /health": (404, 200),
}
OTHER_BODY = {
    "GET /value/date": ("2020-01-02T00:00:00", "2020-01-02"),  # Faust's with orjson is ours
    "GET /value/bytes": ("b'abc'", "abc"),
    "GET /": ('"status": "OK"', "<!doctype html>"),
    "GET /table/none/": ("unknown table", "has no table none"),
    "GET /router/topics": ("__assignor-__leader", "pages-NAME.words"),  # a leader needs no topic
}


def asked(port: int, each: Asked) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(each.method, each.path, body=each.body.encode() or None, headers=dict(each.headers))
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace").replace(f"http://127.0.0.1:{port}", "HERE")
    text = re.sub("pages-(faust|isthmus)", "pages-NAME", text)
    connection.close()
    headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    is_json = text and "json" in headers.get("Content-Type", "")
    return Answer(answer.status, answer.reason, headers, json.loads(text) if is_json else text)


def is_same(theirs: Answer, ours: Answer) -> bool:
    """Or an error that aiohttp tells in text, and this package in JSON. Faust allows HEAD for pages without GET, too,
    and refuses it then."""
    if theirs == ours:
        return True
    if theirs.body and re.match(r"4..: |500 ", str(theirs.body)):
        allowed = [{*each.headers.get("Allow", "HEAD").split(",")} - {"HEAD"} for each in (theirs, ours)]
        return theirs[:2] == ours[:2] and list(ours.body) == ["error"] and allowed[0] == allowed[1]
    return theirs.status == 405 and theirs[:2] == ours[:2] and theirs.body == ours.body


def test_pages_beside_faust_s(broker: Any, programs: Path, tmp_path: Path) -> None:
    both = sides("pages.py", ["words"], broker, programs, tmp_path)
    for side in both:
        (side.folder / "data.txt").write_text("data")
    with workers(both) as (theirs, ours):
        for word in ("fox", "fox", "dog"):
            for each in (theirs, ours):
                each.until(Asked("POST", f"/words/say/{word}"), lambda answer: answer.status == 200)
        for each in (theirs, ours):
            each.until(Asked("GET", "/words/"), lambda answer: answer.body == {"fox": 2, "dog": 1})
        answers = {str(each): (asked(theirs.port, each), asked(ours.port, each)) for each in ASKED}
    differ = {name: pair for name, pair in answers.items() if not is_same(*pair)}
    assert set(differ) == {*OTHER_STATUS, *OTHER_BODY}, differ
    for name, statuses in OTHER_STATUS.items():
        assert tuple(each.status for each in differ[name]) == statuses
    for name, parts in OTHER_BODY.items():
        for part, answer in zip(parts, differ[name], strict=True):
            assert part in (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)), name


# --- Commands ---------------------------------------------------------------------------------------

COMMANDS = [
    *("bare", "with-self", "--debug with-self", "-q with-self", "--json with-self", "-l info bare", "tidy", "based"),
    *("say hi", "say a b c --times 2 --loud --mood good", "say hi -t x --mood good", "say hi --tims 2", "say --help"),
    *("counter --count 5", "--json tabulated", "tabulated", "fails raise", "fails usage", "fails exit", "fails none"),
    *("post hi", "soon", "nope", "reset", "livecheck", "--json agents", "--json tables", "--json model Point"),
]
OTHER_COMMANDS = {  # the exit codes, and parts of what is printed
    "say hi --tims 2": (2, 2, "No such option", "No such option"),  # another version of click
    "tabulated": (0, 0, "+Words-", "┌Words─"),  # as in a terminal
    "fails usage": (1, 2, "UsageError: not so", "Error: not so"),  # Faust shows a traceback
    "reset": (0, 0, "Removing database", "mine"),
    "livecheck": (2, 2, "not associated with LiveCheck", "test an app with TestDriver"),
    "--json tables": (0, 0, '{"name":"counts","help"', '{"name":"counts","changelog"'),  # says more
}


def test_commands_beside_faust_s(broker: Any, programs: Path, tmp_path: Path) -> None:
    both = sides("commands.py", ["words"], broker, programs, tmp_path)

    def outcome(command: str, side: Side) -> tuple[int, str, str]:
        done = side.run(*command.split())
        said = [text.replace(f"commands-{side.name}", "NAME") for text in (done.stdout, done.stderr)]
        return done.returncode, said[0], said[1]

    with ThreadPoolExecutor(2) as pool:
        done = {each: tuple(pool.map(functools.partial(outcome, each), both)) for each in COMMANDS}
    differ = {
        command: (theirs, ours)
        for command, (theirs, ours) in done.items()
        if theirs[:2] != ours[:2] or (ours[0] == 2 and theirs[2] != ours[2])
    }
    assert set(differ) == set(OTHER_COMMANDS), differ
    for command, (their_code, our_code, their_part, our_part) in OTHER_COMMANDS.items():
        theirs, ours = differ[command]
        assert (theirs[0], ours[0]) == (their_code, our_code)
        assert their_part in theirs[1] + theirs[2] and our_part in ours[1] + ours[2], differ[command]


# --- What runs beside the agents --------------------------------------------------------------------

LATER = "after configured"  # a signal that Faust sends with the one before it, and this package when the worker begins
IN_ORDER = ("before configured", "configured True", "worker init", "assigned", "rebalance complete")
RAN = {
    *(*IN_ORDER, LATER, "service start", "service started", "task", "task of the app True", "task on leader"),
    *("long task", "service task", "timer", "timer on leader True True", "service timer", "crontab"),
    "crontab on leader",
}
AGAIN = ("service task", "timer", "timer on leader True True", "service timer", "crontab", "crontab on leader")


def test_what_runs_beside_agents_beside_faust_s(broker: Any, programs: Path, tmp_path: Path) -> None:
    both = sides("background.py", ["words"], broker, programs, tmp_path)
    with workers(both) as running:
        for each in running:
            each.until(Asked("GET", "/seen"), lambda answer: {*AGAIN} <= {*answer.body["several"]})
        seen = [asked(each.port, Asked("GET", "/seen")).body["seen"] for each in running]
    for each in seen:
        assert {*each} == RAN
        assert tuple(name for name in each if name in IN_ORDER) == IN_ORDER
        assert each.index("rebalance complete") < each.index("service start") < each.index("service started")
    assert [each.index(LATER) < each.index("worker init") for each in seen] == [True, False]
    ended = [sorted((side.folder / "ended").read_text().splitlines()) for side in both]
    assert ended == [["before shutdown", "service stop True", "task woken True"]] * 2
