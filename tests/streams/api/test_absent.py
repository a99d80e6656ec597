"""What Faust has and this package does not says by itself what to use."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import isthmus.streams
from isthmus.streams import (
    App,
    AppError,
    Channel,
    Event,
    HoppingWindow,
    Record,
    Schema,
    Service,
    Stream,
    Worker,
    cli,
    contrib,
    models,
    serializers,
    types,
    utils,
    web,
)
from isthmus.streams.api.absent import ABSENT, MODULES, OF_KAFKA_STREAMS
from isthmus.streams.api.agents import Agent
from isthmus.streams.api.routing import Router
from isthmus.streams.api.tables import Table
from isthmus.streams.api.topics import Topic
from isthmus.streams.cli import AppCommand
from isthmus.streams.contrib import asgi

OWNERS: dict[str, Any] = {
    "package": isthmus.streams,
    "App": App,
    "Agent": Agent,
    "Stream": Stream,
    "Table": Table,
    "Topic": Topic,
    "Service": Service,
    "Worker": Worker,
    "AppCommand": AppCommand,
    "View": web.View,
    "Blueprint": web.Blueprint,
    "Router": Router,
    "Channel": Channel,
    "Schema": Schema,
    "contrib": contrib,
    "contrib.asgi": asgi,
    "web": web,
    "cli": cli,
    "serializers": serializers,
    "models": models,
    "types": types,
}
# As `integration_tests/streams/beside_faust/names.py` prints them, which is held there.
FAUST: dict[str, Any] = json.loads(Path(__file__).with_name("faust_names.json").read_text())


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in ABSENT.items() for name in names])
def test_every_name_in_the_table_is_absent(of: str, name: str) -> None:
    """Else the row says what is not so."""
    assert not hasattr(OWNERS[of], name)


async def _read(stream: Any) -> None: ...


def _objects() -> dict[str, Any]:
    """One of each, as an app's code has it."""

    class Order(Record, namespace="absent.Order"):
        total: int

    app = App("app")
    agent: Any = app.agent(app.topic("in"))(_read)
    return {
        "package": isthmus.streams,
        "App": app,
        "Agent": agent,
        "Stream": object.__new__(Stream),
        "Table": app.Table("t"),
        "Topic": agent.topic,
        "Event": Event(None, 1, 0, "in", 0, 0),
        "Record": Order,
        "Service": Service(),
        "Worker": Worker(app),
        "AppCommand": AppCommand(app),
        "View": web.View(app, app.web),
        "Blueprint": web.Blueprint("views"),
        "Router": app.router,
        "Channel": app.channel(),
        "Schema": Schema(),
        "HoppingWindow": HoppingWindow(10, 5),
        "SetTable": app.SetTable("s"),
        "GlobalTable": app.GlobalTable("g"),
        **{name: OWNERS[name] for name in MODULES},
        "utils": utils,
    }


@pytest.mark.parametrize("of", [each for each in FAUST if each != "version"])
def test_each_public_name_of_faust_is_there_or_says_what_to_use(of: str) -> None:
    found = _objects()[of]
    silent = {}
    for name in FAUST[of]:
        if name in dir(type(found)) or name in dir(found):
            continue
        try:
            getattr(found, name)
        except AttributeError as error:
            if "which Faust has: " not in str(error):
                silent[name] = str(error)
    assert not silent


def test_an_attribute_that_faust_has_says_what_to_use() -> None:
    app: Any = App("app")
    table: Any = app.Table("t")
    agent: Any = app.agent(app.topic("in"))(_read)
    package: Any = isthmus.streams
    with pytest.raises(AttributeError, match=r"App has no LiveCheck, which Faust has: test an app with TestDriver"):
        app.LiveCheck()
    with pytest.raises(AttributeError, match=r"Table has no changelog_topic, which Faust has: a worker alone writes"):
        _ = table.changelog_topic
    with pytest.raises(AttributeError, match=r"Agent has no supervisor, which Faust has: on_error says"):
        _ = agent.supervisor
    with pytest.raises(AttributeError, match=r"isthmus.streams has no livecheck, which Faust has: test"):
        _ = package.livecheck


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("exceptions", "has no exceptions, which Faust has: errors are in the package: StreamsError"),
        ("livecheck", "test an app with TestDriver"),
        ("sensors.monitor", "metrics of a worker are at /metrics"),
        ("tables.table", "its names are in the package: from isthmus.streams import Table"),
        ("types.models", "no module isthmus.streams.types.models: what there is of Faust's names is in isthmus.str"),
        ("utils.cron", "is in isthmus.streams.utils"),
    ],
)
def test_a_module_that_faust_has_says_what_to_use(module: str, said: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=re.escape(said)):
        importlib.import_module(f"isthmus.streams.{module}")


def test_other_modules_that_are_not_there_are_pythons_to_tell_of() -> None:
    for name in ("isthmus.streams.nothing", "isthmus.nothing", "isthmus.streams.api.tables.nothing"):
        with pytest.raises(ModuleNotFoundError, match="No module named"):
            importlib.import_module(name)


def test_what_is_imported_says_what_to_use() -> None:
    for module, name, said in (
        ("isthmus.streams", "Sensor", "metrics of a worker are at /metrics"),
        ("isthmus.streams", "livecheck", "test an app with TestDriver"),
        ("isthmus.streams.models", "maybe_model", "MODEL.from_data"),
        ("isthmus.streams.web", "ResourceOptions", "set the headers of CORS"),
        ("isthmus.streams.types", "JoinableT", "StreamT or TableT"),
        ("isthmus.streams.cli", "call_command", "TestDriver"),
        ("isthmus.streams.serializers", "Registry", "codecs.register"),
        ("isthmus.streams.contrib", "sentry", "sentry_sdk.init"),
        ("isthmus.streams.contrib.asgi", "AsgiService", "serve_asgi"),
    ):
        with pytest.raises(ImportError, match=f"has no {name}, which Faust has: {said}"):
            exec(f"from {module} import {name}")
        assert not hasattr(importlib.import_module(module), name)


def test_a_name_with_a_slip_gets_the_nearest() -> None:
    app: Any = App("app")
    package: Any = isthmus.streams
    with pytest.raises(AttributeError, match=r"App has no crontabs: is it crontab\?"):
        _ = app.crontabs
    with pytest.raises(AttributeError, match=r"isthmus.streams has no Ap: is it App\?"):
        _ = package.Ap
    assert not hasattr(app, "nothing_like_it")


def test_what_is_loaded_later_is_there() -> None:
    for name in isthmus.streams.__all__:
        assert getattr(isthmus.streams, name) is not None


def _steps(app: App) -> dict[str, Any]:
    source = app.stream("numbers")
    return {
        "Source": source,
        "Keyed": source.group_by_key(),
        "Windowed": source.tumbling(60),
        "Aggregated": source.tumbling(60).count(name="counts"),
        "TableView": source.table("latest"),
        "GroupedTable": source.table("others").group_by(str, name="by"),
    }


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in OF_KAFKA_STREAMS.items() for name in names])
def test_what_kafka_streams_calls_otherwise_says_what_to_use(of: str, name: str) -> None:
    step = _steps(App("app"))[of]
    in_python = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    for spelled in {name, in_python}:
        with pytest.raises(AttributeError, match=f"{of} has no {spelled}, which Kafka Streams has: "):
            getattr(step, spelled)


def test_a_step_that_nobody_has_gets_the_nearest_or_all() -> None:
    source: Any = App("app").stream("numbers")
    with pytest.raises(AttributeError, match="Source has no leftJoin: is it left_join"):
        source.leftJoin()
    with pytest.raises(AttributeError, match="Source has no zzz; it has branch, dedup"):
        source.zzz()
    with pytest.raises(AppError, match="declare an agent"):
        aiter(source)
