"""`isthmus streams` on a cluster with what an app has left there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from integration_tests.console.commands import error, isthmus, said
from isthmus.client import Admin, Client, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.streams.engine.checkpoint import MARKER, Marker
from isthmus.streams.engine.time import AWAITED

APP = """\
from isthmus.streams import App

app = App("shop")
orders = app.topic("orders")
totals = app.Table("totals", default=int)


@app.agent(orders)
async def count(stream):
    async for order in stream.group_by(lambda order: order["item"], name="item"):
        totals[order["item"]] += 1
"""
OWN = ["shop-totals-by-day-changelog", "shop-count-orders-item-repartition", "shop-orders-copartitioned"]
STAY = ["shop-dead-letters", "orders", "shop-v2-totals-changelog", "shopping-totals-changelog"]


def on(bootstrap: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = Client(bootstrap)
        await client.start()
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_an_app_is_drawn_its_lag_shown_and_its_state_reset(kafka: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)

    def streams(*arguments: str) -> Any:
        return isthmus("streams", *arguments, folder=tmp_path)

    drawn = said(streams("topology", "shop.py:app"))
    assert "topic orders -> agent" in drawn and "-> table totals" in drawn
    assert said(streams("topology", "shop.py:app", "--format", "mermaid")).startswith("flowchart")
    assert said(streams("topology", "shop.py:app", "--format", "svg")).startswith("<svg")
    assert json.loads(said(streams("topology", "shop.py:app", "--format", "json")))["app"] == "shop"
    assert "--format is png" in error(streams("topology", "shop.py:app", "--format", "png"))
    assert "there is no file none.py" in error(streams("topology", "none.py:app"))

    async def leave(client: Client) -> None:
        await Admin(client).create_topics([NewTopic(name, 2) for name in OWN + STAY])
        producer = Producer(client)
        await producer.start()
        await asyncio.gather(*(producer.send("orders", b"{}", timestamp_ms=n * 1000, partition=0) for n in range(10)))
        # A group whose name makes the app's changelog look like one of its own, and a changelog of such an app.
        for app, changelog in (("shop", OWN[0]), ("shop-v2", "shop-v2-totals-changelog")):
            marker = Marker(app, 1, watermarks={"orders": {"orders": (7_000, AWAITED), "": (7_000, 9_000)}})
            await producer.send(changelog, marker.encode(), MARKER, partition=1)
        await producer.close()
        await Admin(client).alter_group_offsets("shop-totals", {TopicPartition("orders", 0): 1})
        committed = {TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 0, TopicPartition(OWN[1], 0): 0}
        await Admin(client).alter_group_offsets("shop", committed)
        await Admin(client).alter_group_offsets("shop-v2", committed)

    async def offsets(client: Client) -> dict[TopicPartition, int]:
        return await Admin(client).group_offsets("shop")

    async def topics(client: Client) -> list[str]:
        return [name for name in await Admin(client).list_topics() if name in OWN + STAY + ["shop-restoring"]]

    on(kafka, leave)
    rows = json.loads(said(streams("lag", "shop", "-b", kafka, "--json")))
    assert {
        (row["topic"], row["partition"], row["kind"], row["committed"], row["end"], row["lag"]) for row in rows
    } == {
        ("orders", 0, "input", 4, 10, 6),
        ("orders", 1, "input", 0, 0, 0),
        (OWN[1], 0, "repartition", 0, 0, 0),
        (OWN[1], 1, "repartition", None, 0, 0),
    }
    assert {(row["topic"], row["partition"]): row["watermark_ms"] for row in rows if row["watermark_ms"]} == {
        ("orders", 1): 7_000
    }
    assert "1970-01-01 00:00:07.000Z" in said(streams("lag", "shop", "-b", kafka))
    assert "never ran here" in error(streams("lag", "nothing", "-b", kafka))
    assert "has nothing on this cluster" in error(streams("reset", "nothing", "-b", kafka))
    assert "not both" in error(streams("reset", "shop", "--to", "latest", "--shift", "1", "-b", kafka))

    facts = json.loads(
        said(streams("reset", "shop", "--to", "1970-01-01T00:00:07+00:00", "--dry-run", "--json", "-b", kafka))
    )
    assert (facts["topics"], facts["group"], facts["removed"]) == (sorted(OWN), True, False)
    assert [(each["topic"], each["partition"], each["offset"]) for each in facts["offsets"]] == [
        ("orders", 0, 7),
        ("orders", 1, 0),
    ]
    assert on(kafka, topics) == sorted(OWN + STAY)
    assert "nothing was removed" in error(
        isthmus("streams", "reset", "shop", "-b", kafka, folder=tmp_path, stdin="n\n")
    )
    assert "removed of app shop" in said(streams("reset", "shop", "--shift", "-3", "--yes", "-b", kafka))
    assert on(kafka, topics) == sorted(STAY)
    assert on(kafka, offsets) == {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0}
    said(streams("reset", "shop", "--yes", "-b", kafka))
    assert on(kafka, offsets) == {}
