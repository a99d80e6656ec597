"""The architecture lint on the project as it is, and on small wrong modules: each rule is seen to fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture import CIRCLE_RULE, ROOT, Breach, check, check_project, product_modules

CLIENT, STORAGE, SERVER = "isthmus.client.x", "isthmus.core_broker.storage.log.x", "isthmus.core_broker.server.apis.x"
# Modules that the wrong ones may point at.
NEIGHBOURS = [
    "isthmus.runtime", "isthmus.protocol", "isthmus.protocol.records", "isthmus.client", "isthmus.client.connection",
    "isthmus.core_broker", "isthmus.core_broker.broker", "isthmus.core_broker.cluster.image",
    "isthmus.core_broker.cluster.controller", "isthmus.core_broker.replication.partition",
    "isthmus.core_broker.storage.disk.files", "isthmus.core_broker.storage.disk.real_files",
    "isthmus.core_broker.storage.log.log", "isthmus.core_broker.storage.upkeep.cleaner",
    "isthmus.core_broker.storage.startup.opening", "isthmus.core_broker.storage.check.repair",
    "isthmus.core_broker.storage.manager",
    "isthmus.core_broker.server.connection", "isthmus.streams.engine",
]  # fmt: skip


def breaches_of(name: str, source: str) -> list[Breach]:
    sources = {each: (each, "", False) for each in NEIGHBOURS}
    return check({**sources, name: ("x.py", source, False)})


def test_the_project_keeps_its_rules() -> None:
    assert [str(breach) for breach in check_project()] == []


def test_every_room_is_read_once() -> None:
    modules = product_modules()
    assert {"isthmus.runtime", "isthmus.protocol", "isthmus.core_broker.purgatory"} <= set(modules)
    assert not [name for name in modules if name.startswith("isthmus.isthmus")]
    assert len({path.resolve() for path in modules.values()}) == len(modules)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("isthmus.protocol.x", "from ..client import connection"),
        (CLIENT, "from ..core_broker.storage import log"),
        (CLIENT, "import isthmus.core_broker.broker"),
        (CLIENT, "import protocol"),
        ("isthmus.mirror.x", "from isthmus.core_broker.storage.log.log import Log"),
        ("isthmus.mirror.x", "from ..streams import engine"),
        ("isthmus.streams.x", "def f():\n    from ..core_broker import broker"),
        ("isthmus.connectors.x", "from ..core_broker import purgatory"),
        ("isthmus.console.x", "from ..core_broker.broker import Broker"),
        (STORAGE, "from ...cluster.image import MetadataImage"),
        (STORAGE, "from ....client import connection"),
        ("isthmus.core_broker.cluster.image", "from .controller import CreateTopics"),
        ("isthmus.core_broker.cluster.x", "from ..replication import partition"),
        ("isthmus.core_broker.replication.x", "from ..cluster.controller import CreateTopics"),
        ("isthmus.core_broker.replication.x", "from ...client import Client"),
        ("isthmus.core_broker.coordinators.x", "from ..server import connection"),
        (SERVER, "from ...broker import Broker"),
    ],
)
def test_an_import_against_the_arrows_is_found(name: str, source: str) -> None:
    assert [breach.rule for breach in breaches_of(name, source)] == ["imports"]


ROOMS_OF_STORAGE = [
    # room, import that no module of it may have
    ("disk", "from ..log import log"),
    ("log", "from ..upkeep import cleaner"),
    ("log", "from ..startup import opening"),
    ("log", "if TYPE_CHECKING:\n    from ..upkeep import cleaner"),
    ("upkeep", "from ..startup import opening"),
    ("upkeep", "from .. import manager"),
    ("startup", "from ..upkeep import cleaner"),
    ("startup", "from ..check import repair"),
    ("check", "from ..upkeep import cleaner"),
    ("check", "from .. import manager"),
]


@pytest.mark.parametrize(("room", "source"), ROOMS_OF_STORAGE)
def test_an_import_against_the_arrows_of_storage_is_found(room: str, source: str) -> None:
    assert [breach.rule for breach in breaches_of(f"isthmus.core_broker.storage.{room}.x", source)] == ["imports"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from .b import B", "from . import a"),
        ("from .b import B", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A"),
        ("import isthmus.client.b", "def f():\n    from .a import A"),
        ("from .b import B", "from .c import C"),
    ],
)
def test_a_circle_of_imports_is_found(first: str, second: str) -> None:
    sources = {
        f"isthmus.client.{name}": (f"{name}.py", source, False)
        for name, source in (("a", first), ("b", second), ("c", "from .a import A"), ("d", "from .a import A"))
    }
    (breach,) = check(sources)
    assert (breach.path, breach.line, breach.rule) == ("a.py", 1, CIRCLE_RULE)
    assert "isthmus.client.a, isthmus.client.b" in breach.what and "isthmus.client.d" not in breach.what


def test_imports_that_make_no_circle_pass() -> None:
    texts = {"a": "from . import b, c", "b": "from . import c", "c": "from . import d", "d": ""}
    assert check({f"isthmus.client.{name}": (name, text, False) for name, text in texts.items()}) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (CLIENT, "from ..protocol import records\nfrom ..runtime import Runtime\nfrom . import connection"),
        (CLIENT, "from isthmus import runtime\nfrom isthmus.protocol.records import walk"),
        (STORAGE, "from ....protocol import records\nfrom ..disk.files import Files"),
        ("isthmus.core_broker.replication.x", "from ..storage import log\nfrom ..cluster.image import MetadataImage"),
        ("isthmus.core_broker.replication.x", "from ...client import connection"),
        (SERVER, "from ..connection import Connection\nfrom ...replication.partition import Partition"),
        (
            "isthmus.core_broker.broker",
            "from .server import connection\nfrom .storage.disk.real_files import RealFiles",
        ),
    ],
)
def test_an_import_along_the_arrows_passes(name: str, source: str) -> None:
    assert breaches_of(name, source) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (CLIENT, "import time\n"),
        (CLIENT, "from time import monotonic as now\n"),
        (CLIENT, "import random\nx = random.random()"),
        (CLIENT, "from random import Random\nx = Random(1)"),
        (CLIENT, "import uuid\nx = uuid.uuid4()"),
        (CLIENT, "from uuid import uuid4"),
        (CLIENT, "import os\nx = os.urandom(2)"),
        (CLIENT, "import datetime as d\nx = d.datetime.now()"),
        (CLIENT, "import threading"),
        (CLIENT, "import asyncio\nasync def f(): await asyncio.to_thread(g)"),
        (CLIENT, "async def f(loop): await loop.run_in_executor(None, g)"),
        (CLIENT, "from concurrent.futures import ThreadPoolExecutor"),
        (CLIENT, "import subprocess"),
        (CLIENT, "from signal import SIGTERM"),
        (CLIENT, "import asyncio\nasync def f(): await asyncio.open_connection('h', 1)"),
        (CLIENT, "async def f(loop, s): await loop.sock_sendall(s, b'')"),
        (STORAGE, "with open('x') as f: pass"),
        (STORAGE, "from pathlib import Path"),
        (STORAGE, "import os\nos.fsync(3)"),
        (STORAGE, "import os.path\nx = os.path.exists('x')"),
        (SERVER, "import mmap"),
        (CLIENT, "for x in {1, 2}: pass"),
        (CLIENT, "x = [y for y in set(z)]"),
        (CLIENT, "def f(a: set[str]):\n    for x in a: pass"),
        (CLIENT, "def f():\n    a = set()\n    return list(a)"),
        (CLIENT, "def f(a: set[str]):\n    return ','.join(a)"),
        (CLIENT, "def f(a: set[str], b):\n    for x in a - b: pass"),
        (CLIENT, "class A:\n    def f(self):\n        self.a = set()\n    def g(self):\n        for x in self.a: pass"),
        (CLIENT, "class A:\n    a: set[int]\n    def g(self):\n        return tuple(self.a)"),
        (CLIENT, "cache = {}"),
        (CLIENT, "from collections import deque\nwaiting = deque()"),
        (CLIENT, "count = 0\ndef f():\n    global count"),
    ],
)
def test_a_forbidden_name_is_found(name: str, source: str) -> None:
    assert breaches_of(name, source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("isthmus.runtime", "import time, random, os\nx = time.time_ns(), random.Random(os.urandom(32))"),
        ("isthmus.core_broker.storage.disk.real_files", "import os, threading\nos.fsync(3)\nopen('x')"),
        ("isthmus.core_broker.__main__", "import signal\nfrom .broker import Broker"),
        ("isthmus.console.x", "import subprocess, time"),
        (CLIENT, "import random\ndef f(chance: random.Random): return chance.random()"),
        (CLIENT, "open_it = files.open('x')\nrandom = runtime.random\ntime = runtime.wall_ms()"),
        (CLIENT, "for x in sorted({1, 2}): pass"),
        (CLIENT, "def f(a: set[str]):\n    return any(x for x in a), {x for x in a}, len(a)"),
        (CLIENT, "def f(a: dict[str, int]):\n    for x in a: pass"),
        (CLIENT, "import time  # allowed: a reason"),
        (CLIENT, "TABLE = {1: 2}\nNAMES = [1]"),
    ],
)
def test_what_is_allowed_passes(name: str, source: str) -> None:
    assert breaches_of(name, source) == []


HEAVY = "typer rich pandas numpy pyarrow pyspark pydantic ruamel deltalake matplotlib jinja2 re2".split()
LOADED = "import sys, {module}; print([name for name in {heavy} if name in sys.modules])"


def loaded_by(module: str) -> str:
    code = LOADED.format(module=module, heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_broker_process_loads_nothing_heavy() -> None:
    if not (ROOT / "core_broker/broker.py").exists():
        pytest.skip("no broker yet")
    assert loaded_by("isthmus.core_broker.broker").strip() == "[]"
    assert loaded_by("isthmus.core_broker.__main__").strip() == "[]"


def test_control_a_heavy_import_would_be_seen() -> None:
    assert loaded_by("rich").strip() == "['rich']"
