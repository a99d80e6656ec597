"""Operators give the same with their tables on disk, committed between batches."""

import random
from pathlib import Path
from typing import Any

from isthmus.streams.api.pipeline import Pipeline
from isthmus.streams.engine.stores.database import DiskMemory
from isthmus.streams.engine.stores.disk import DiskStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.tables import TableSpec
from tests.streams.flowing import Flowing


def declared() -> Pipeline:
    """A step of each kind with state."""
    app = Pipeline("app")
    left, right = app.topic("left"), app.topic("right")
    table, versions = right.table("t", ttl=0.05), right.table("v", history=1)
    left.outer_join(right, value=lambda a, b: (a, b), within=0.01, name="pairs").to("pairs")
    left.left_join(table, value=lambda a, b: (a, b), name="looked-up").to("looked-up")
    left.left_join(versions, value=lambda a, b: (a, b), grace=0.01, name="as-of").to("as-of")
    left.tumbling(0.02, grace=0.01).collect(name="tumbling").final().to("tumbling")
    left.sliding(0.02, grace=0.01).count(name="sliding").final().to("sliding")
    left.session(0.02, grace=0.01).sum(name="session").final().to("session")
    left.dedup(lambda value: value % 5, within=0.02, name="once").to("once")
    left.group_by_key().mean(name="mean").suppress(0.02, name="calm").to("calm")
    table.join(versions, key=lambda value: "AB"[value % 2], value=lambda a, b: (a, b), name="foreign").stream().to("f")
    return app


def given(store: Any) -> tuple[dict[str, list[Any]], dict[str, dict[Any, Any]]]:
    """What comes out, and what is in the tables then."""
    chance = random.Random(5)
    run = Flowing(declared(), store=store)
    for number in range(40):
        topic = chance.choice(["left", "right"])
        run.send(topic, *[(chance.choice("ABC"), number * 5 + n, number * 5 + chance.randrange(30)) for n in range(5)])
        for each in run.stores.values():
            each.take_changes()
            each.confirm(number, b"marker")
    run.advance(230)
    return (
        {name: [(e.key, e.value, e.timestamp_ms) for e in events] for name, events in run.sent.items()},
        {name: run.rows(name) for name in run.stores},
    )


def test_operators_give_the_same_on_disk(tmp_path: Path) -> None:
    memory, opened = DiskMemory(), []

    def on_disk(spec: TableSpec) -> Store:
        store = DiskStore(spec, tmp_path / spec.name, "changelog-0", memory, lambda: 0)
        opened.append(store)
        return store

    found = given(on_disk)
    assert found == given(MemoryStore)
    assert all(found[0].values())
    for store in opened:
        store.close()
