# mypy: ignore-errors
"""Runs programs that import faust: `host.py faust|isthmus SETTINGS`, where SETTINGS are JSON (see `Settings`); prints
what they made of their input as one JSON object, by program.

All programs of a run are in one process, each with its app, and ids and topics that begin with the program's name.
What they do by timers, crontabs, tasks and commands is called by this host, as the settings say, with the same random
numbers, the same clock and the same times of records on both sides; else they run as they are. All end when each one's
`done` says so, or with the time that they have.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import inspect
import itertools
import json
import logging
import os
import random
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass
class Settings:
    """packages: of faust and what it needs, for what programs import beside it. programs: by name, what `Program`
    takes. base: the time of the first record, in seconds. within: seconds that all have."""

    packages: str
    programs: dict[str, dict[str, Any]]
    base: int
    within: float


SIDE, SETTINGS = sys.argv[1], Settings(**json.loads(sys.argv[2]))
IS_FAUST = SIDE == "faust"
TIMED = {"timer", "crontab", "task", "command"}  # of App: what the host calls itself
loading = ""  # name of the program that is
in_job: contextvars.ContextVar[itertools.count] = contextvars.ContextVar("in_job")

if not IS_FAUST:
    import isthmus.streams as faust
    from isthmus.streams.api.topics import Topic

    class _Alias:
        """Finds `faust.x` as `isthmus.streams.x`."""

        def find_spec(self, name, path=None, target=None):
            if name != "faust" and not name.startswith("faust."):
                return None
            return importlib.util.spec_from_loader(name, self)

        def create_module(self, spec):
            return importlib.import_module("isthmus.streams" + spec.name.removeprefix("faust"))

        def exec_module(self, module):
            pass

    sys.meta_path.insert(0, _Alias())
    sys.modules["faust"] = faust
    sys.path.append(SETTINGS.packages)
else:
    import faust
    from faust.tables.table import Table as FaustTable
    from faust.topics import Topic

# --- What a program's app is asked for, and what this host does in its stead ------------------------------------------

JOBS: dict[Any, dict[str, Any]] = {}  # app -> name -> function


def recording(self, *given, **options):
    """In place of App.timer, crontab, task and command."""

    def declare(function):
        named = getattr(function, "func", function)
        JOBS.setdefault(self, {})[named.__name__] = function
        return function

    return declare(given[0]) if len(given) == 1 and inspect.iscoroutinefunction(given[0]) else declare


_send = Topic.send


async def stamped(self, *given, **options):
    """Topic.send, with the next time where a job sends."""
    times = in_job.get(None)
    if times is not None and options.get("timestamp") is None:
        options["timestamp"] = SETTINGS.base + next(times) * 0.05
    return await _send(self, *given, **options)


_init, _topic = faust.App.__init__, faust.App.topic


def named(self, id, *given, **options):
    """App.__init__."""
    _init(self, f"{loading}-{id}", *given, **options)


def topic_of(self, *topics, **options):
    """App.topic."""
    ours = [each if loading == "" or each.startswith(f"{loading}-") else f"{loading}.{each}" for each in topics]
    return _topic(self, *ours, **options)


def patch() -> None:
    for name in TIMED:
        setattr(faust.App, name, recording)
    faust.App.__init__, faust.App.topic, faust.App.main = named, topic_of, lambda self: None
    Topic.send = stamped
    faust.uuid = lambda: "uuid"


class Now(datetime):
    """In place of datetime."""

    @classmethod
    def now(cls, *_):
        return datetime(2020, 1, 1)

    @classmethod
    def utcnow(cls):
        return datetime(2020, 1, 1)


class Clock(SimpleNamespace):
    """In place of the module `time`, and of its function."""

    def __call__(self):
        return float(SETTINGS.base + 1)

    time = __call__


class Program:
    """jobs: to call one after the other, with arguments: functions of the program; `agent:NAME` and `topic:NAME` send
    the values that an expression of the module `m` gives; `close:NAME` waits until an expression like `done` is true,
    and has Faust look for windows of a table that have expired, which it does every half a minute. done: an expression
    of `lines`, what was printed, and `t`, the tables by name. patches: names of the module -> expressions."""

    def __init__(self, name: str, file: str, jobs: list[Any], done: str, patches: dict[str, str]):
        global loading
        self.name = loading = name
        self.done = done
        self.lines: list[str] = []
        self.jobs = jobs
        self.error = ""
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        self.module = module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        module.print = self.print
        spec.loader.exec_module(module)
        chance = random.Random(7)
        for key, value in list(vars(module).items()):
            if value is random:
                setattr(module, key, chance)
            elif getattr(value, "__self__", None) is random._inst:
                setattr(module, key, getattr(chance, value.__name__))
            elif value is time or value is time.time:
                setattr(module, key, Clock())
            elif value is datetime:
                setattr(module, key, Now)
            elif isinstance(value, logging.Logger):
                setattr(module, key, SimpleNamespace(info=self.print, error=self.print))
        for key, value in patches.items():
            setattr(module, key, eval(value, {**globals(), "reached": self.reached}))
        if inspect.isfunction(vars(module).get("main")):
            module.main()
        loading = ""
        self.app = module.app
        self.app.conf.web_enabled = False
        if IS_FAUST:
            self.app.conf.store = "memory://"

    async def reached(self, url: str) -> None:
        """In place of what goes out to the net."""
        self.print(url)

    def print(self, *given: Any) -> None:
        self.lines.extend(" ".join(map(str, given)).splitlines())

    async def run_jobs(self) -> None:
        in_job.set(itertools.count())
        try:
            for name, *arguments in self.jobs:
                await self._run(name, arguments)
        except Exception:
            self.error = traceback.format_exc()

    async def _run(self, name: str, arguments: list[Any]) -> None:
        kind, _, of = name.rpartition(":")
        if kind == "close":
            while not eval(arguments[0], {"lines": self.lines, "t": self.tables()}):
                await asyncio.sleep(0.05)
            if IS_FAUST:
                await getattr(self.module, of).table._del_old_keys()
            return
        if kind:
            for key, value in eval(arguments[0], {"m": self.module}):
                await getattr(self.module, of).send(key=key, value=value, timestamp=SETTINGS.base + 5.0)
            return
        function = JOBS.get(self.app, {}).get(name) or getattr(self.module, name)
        if list(inspect.signature(function).parameters)[:1] == ["self"]:
            arguments = [SimpleNamespace(say=self.print), *arguments]
        made = function(*arguments)
        if inspect.isawaitable(made):
            await made

    def tables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if IS_FAUST:
            for name, table in self.app.tables.items():
                rows = dict(FaustTable.items(table)) if table.window is None else dict(table.data.items())
                found[name] = {_windowed(key) if table.window else str(key): plain(row) for key, row in rows.items()}
            return found
        from isthmus.streams.api.rows import TableLike

        for table in {id(each): each for each in vars(self.module).values() if isinstance(each, TableLike)}.values():
            if table.spec.windows is not None:
                rows = {f"{key} from {start_ms / 1000:.1f}": row for (key, start_ms), row in table.rows().items()}
            else:
                rows = {str(key): row for key, row in table.items()}
            found[table.spec.name] = {key: plain(row) for key, row in rows.items()}
        return found

    def state(self) -> dict[str, Any]:
        try:
            tables = self.tables()
        except Exception as error:
            tables, self.error = {}, self.error or repr(error)
        return {"lines": sorted(self.lines), "tables": tables, "error": self.error}

    @property
    def is_done(self) -> bool:
        try:
            return bool(self.error) or bool(eval(self.done, {"lines": self.lines, "t": self.tables()}))
        except Exception:  # a table that is not there yet, or changes meanwhile
            return False


def _windowed(key: Any) -> str:
    name, (start, _) = key
    return f"{name} from {start:.1f}"


def plain(value: Any) -> Any:
    if hasattr(value, "asdict"):
        return plain(value.asdict())
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 6)
    if value is None or isinstance(value, (int, str, bool)):
        return value
    return sorted(map(plain, value)) if hasattr(value, "__iter__") and not isinstance(value, bytes) else repr(value)


async def main() -> None:
    patch()
    programs: dict[str, Program] = {}
    failed: dict[str, str] = {}
    for name, each in SETTINGS.programs.items():
        try:
            programs[name] = Program(name, **each)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    deadline = time.monotonic() + SETTINGS.within
    await asyncio.gather(*(started(each) for each in programs.values()))
    jobs = [asyncio.ensure_future(each.run_jobs()) for each in programs.values()]
    while time.monotonic() < deadline and not all(each.is_done for each in programs.values()):
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # more than is to be would be seen
    made = {name: each.state() for name, each in programs.items()}
    made |= {name: {"lines": [], "tables": {}, "error": error} for name, error in failed.items()}
    print("MADE", json.dumps(made), flush=True)
    for job in jobs:
        job.cancel()
    if not IS_FAUST:
        await asyncio.gather(*(each.app.stop() for each in programs.values()))
    os._exit(0)  # faust's consumers would take their time


async def started(program: Program) -> None:
    try:
        await program.app.start()
    except Exception:
        program.error = traceback.format_exc()


logging.basicConfig(level=logging.WARNING)
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(main())
