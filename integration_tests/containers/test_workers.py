"""Two workers of one app in containers: tables on disk that outlive a kill, and rows that each asks the other for."""

from __future__ import annotations

import asyncio
import functools
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.mirror.workers import run, until
from integration_tests.peers.peers import free_ports
from isthmus.client import Client, Producer
from isthmus.deploy.compose import compose_file
from isthmus.deploy.engine import docker
from isthmus.deploy.project import ComposeProject
from isthmus.deploy.supervisor import State

KEYS = [f"key {n}" for n in range(40)]
FOLDER = "/data/totals-data/v1/tables/one"  # of one worker's tables, by its name
TEST_TIMEOUT_S = 240.0
TOPOLOGY = """\
name: shop
datacenters:
  hub: {{listen: "127.0.0.1:{}", topics: {{sales: {{partitions: 4}}}}}}
workers:
  - {{name: one, app: "apps/totals.py:app", datacenter: hub, web_port: {}}}
  - {{name: two, app: "apps/totals.py:app", datacenter: hub, web_port: {}}}
"""
APP = """\
from isthmus.streams import App

app = App("totals", store="rocksdb://", broker_commit_interval=0.2)
sales = app.topic("sales", key_type=str, value_type=int)
totals = app.Table("totals", default=int, key_type=str)


@app.agent(sales)
async def add(stream):
    async for key, value in stream.items():
        totals[key] += value
"""


class Shop:
    """The project, and what its table must have."""

    def __init__(self, project: ComposeProject, hub: int, pages: list[int]) -> None:
        self.project = project
        self.hub = hub
        self.pages = pages
        self.want = Counter[str]()

    async def sell(self, each: int) -> None:
        """Done when all of it is acknowledged."""
        client = Client(f"127.0.0.1:{self.hub}")
        await client.start()
        producer = Producer(client)
        await producer.start()
        try:
            sales = [(b"%d" % n, key.encode()) for key in KEYS for n in range(each)]
            await asyncio.gather(*(producer.send("sales", *sale) for sale in sales))
        finally:
            await producer.close()
            await client.close()
        self.want.update({key: sum(range(each)) for key in KEYS})

    async def exact(self) -> None:
        """Either worker gives every row: those that it has, and those that it asks the other for."""
        for port in self.pages:
            await until(functools.partial(self._as_wanted, port), f"port {port} has all", TEST_TIMEOUT_S / 2)

    async def _as_wanted(self, port: int) -> bool:
        rows = await asyncio.to_thread(lambda: {key: row_of(port, key) for key in KEYS})
        assert {key: row.get("value", row) for key, row in rows.items()} == self.want
        assert len({row["worker"] for row in rows.values()}) == 2  # the control: both have some
        return True


def row_of(port: int, key: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/tables/totals?key={key.replace(' ', '%20')}") as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except OSError as error:
        return {"error": str(error)}


@pytest.fixture
def shop(isthmus_image: str, tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "totals.py").write_text(APP)
    hub, *pages = free_ports(3)
    (tmp_path / "topology.yaml").write_text(TOPOLOGY.format(hub, *pages))
    file = tmp_path / "compose.yaml"
    file.write_text(compose_file(tmp_path / "topology.yaml", file))
    project = ComposeProject(file, "isthmus-tests-workers")
    try:
        project.up()
        yield Shop(project, hub, pages)
    except BaseException:
        for each in project.containers():
            print(f"--- {each}\n{project.logs(each)}")
        raise
    finally:
        project.down()


def test_tables_on_disk_outlive_a_kill_and_each_worker_answers_for_the_other(shop: Shop) -> None:
    service = "one-worker"

    async def scenario() -> None:
        await shop.sell(20)
        await shop.exact()
        assert "/CURRENT" in docker("exec", shop.project.container(service).id, "find", FOLDER)
        before = await asyncio.to_thread(shop.project.crash, service)

        async def again() -> bool:
            found = await asyncio.to_thread(shop.project.container, service)
            return found.status.restarts > before.status.restarts and found.status.state is State.READY

        selling = asyncio.create_task(shop.sell(30))
        await until(again, "the restart policy starts it again")
        await selling
        await shop.exact()

    run(scenario(), TEST_TIMEOUT_S)
