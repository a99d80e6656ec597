"""What a stream app has beside its agents, with real workers: timers, pages, commands, and sending without a worker."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.mirror import workers
from integration_tests.mirror.workers import Worker, clients, run, until
from isthmus.client import Admin, Consumer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.streams import Agent, App, AppError, Record, table_reader
from isthmus.streams.api.rpc import NoReply

SHOP = Path(__file__).with_name("shop.py")
PARTITIONS = 4


class Shop:
    def __init__(self, name: str, broker: BrokerProcess, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.name, self.broker, self.folder = name, broker, folder
        environment = {"APP_NAME": name, "APP_BROKER": f"kafka://{broker.bootstrap}"}
        self.environment = {**os.environ, **workers.ENVIRONMENT, **environment}
        patch.setattr(workers, "ENVIRONMENT", self.environment)
        self.count = 0

    def worker(self, *options: str) -> Worker:
        self.count += 1
        return Worker(self.folder, f"worker{self.count}", "isthmus.streams", f"{SHOP}:app", "--web-port=0", *options)

    def command(self, *arguments: str, code: int = 0) -> str:
        made = subprocess.run(
            [sys.executable, str(SHOP), *arguments], env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert made.returncode == code, made.stdout + made.stderr
        return made.stdout + made.stderr

    async def create(self) -> None:
        async with clients(self.broker.bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic(f"{self.name}.orders", PARTITIONS, -1, {})])

    async def totals(self) -> dict[str, int]:
        async with clients(self.broker.bootstrap) as (client,):
            found = await table_reader.read(client, self.name, ["totals"])
        return {row.key: row.value for row in found.rows}


@pytest.fixture
def shop(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(tmp_path.name.replace("_", "-"), broker, tmp_path, monkeypatch)
    run(made.create())
    return made


class Answer(Record, namespace="n.Answer"):
    value: int


def asking(name: str, bootstrap: str, guarantee: str) -> tuple[App, Agent, Agent]:
    """Its agent asks another one, which asks a third that reads through group_by; and each sends something, so that
    with exactly_once all are in one transaction."""
    app = App(name, broker=bootstrap, processing_guarantee=guarantee, web_enabled=False, topic_partitions=1)
    out = app.topic(f"{name}.out", partitions=1, internal=True)

    @app.agent(app.topic(f"{name}.in"), name="first")
    async def first(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            await out.send(value=["first", value])
            answer = await second.ask(value)
            await out.send(value=["answer", answer.value])
            yield answer

    @app.agent(name="second")
    async def second(stream: Any) -> AsyncIterator[Any]:
        async for value in stream:
            await out.send(value=["second", value])
            yield Answer(2 * await third.ask(value))

    @app.agent(name="third")
    async def third(stream: Any) -> AsyncIterator[Any]:
        async for value in stream.group_by(lambda value: value % 2, name="odd"):
            await out.send(value=["third", value])
            yield 10 * value

    return app, first, second


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_agents_of_one_worker_ask_each_other_and_a_client_asks_them(broker: BrokerProcess, guarantee: str) -> None:
    name = f"ask-{guarantee}"

    async def scenario() -> tuple[Any, ...]:
        async with clients(broker.bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic(f"{name}.in", 2, -1, {})])
        app, _, _ = asking(name, broker.bootstrap, guarantee)
        client_app, first, second = asking(name, broker.bootstrap, guarantee)
        await app.start()
        with pytest.raises(NoReply, match="has not answered within 0 s"):
            await second.ask(5, timeout=0)
        joined = await first.join([1, 2, 3])
        mapped = [each.value async for each in second.map([4])]
        await client_app.stop()
        await app.stop()
        return [each.value for each in joined], mapped

    assert run(scenario()) == ([20, 40, 60], [80])
    said = run(records_of(broker, f"{name}.out"))
    assert sorted(each for each in said if each[1] < 4 or each[0] == "answer") == sorted(
        [[who, n] for who in ("first", "second", "third") for n in (1, 2, 3)] + [["answer", n] for n in (20, 40, 60)]
    )


async def records_of(broker: BrokerProcess, topic: str) -> list[Any]:
    """Committed values."""
    async with clients(broker.bootstrap) as (client,):
        await client.refresh_metadata([topic])
        consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_committed")
        tps = [TopicPartition(topic, partition) for partition in client.partitions(topic)]
        consumer.assign(dict.fromkeys(tps))
        found: list[Any] = []
        while any(consumer.lag(tp) != 0 for tp in tps):
            for each in (await consumer.poll(1_000)).values():
                found += [json.loads(record.value or b"") for record in each]
        await consumer.close()
        return found


def url(worker: Worker) -> str:
    found = re.search(r"pages of app \S+: (\S+)", worker.log)
    assert found, worker.log
    return found[1]


def ask(address: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if "json" in answer.headers["Content-Type"] else text
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if "json" in error.headers["Content-Type"] else text


def total(worker: Worker, customer: str) -> int | None:
    """None: not known yet."""
    found: int | None = ask(f"{url(worker)}/total/{customer}/")[1].get(customer)
    return found


def _has(worker: Worker, customer: str, amount: int) -> bool:
    return total(worker, customer) == amount


def test_what_a_worker_runs_and_sends_beside_its_agents_counts(shop: Shop) -> None:
    with shop.worker() as worker:
        worker.ready()

        async def watch() -> None:
            await until(lambda: total(worker, "task") == 1, "the task's record")
            await until(lambda: (total(worker, "timer") or 0) >= 3, "the timer's records")
            assert ask(f"{url(worker)}/health") == (200, "ready\n")

        run(watch())
        assert worker.end() == 0
        said = [
            line for line in worker.log.splitlines() if re.fullmatch(r"(assigned|complete|started|shutdown).*", line)
        ]
        assert said == ["assigned 4", "complete False", "started", "shutdown"]
    with shop.worker() as worker:
        worker.ready()
        # What was sent before the shutdown was acknowledged before the process ended.
        run(until(lambda: total(worker, "last") == 1, "the last record of the first worker"))


def test_two_workers_have_one_leader_and_answer_for_each_other(shop: Shop) -> None:
    said = shop.command("order", "ann", "--amount", "3", "--times", "100")
    assert json.loads(said) in ([0], [1], [2], [3])
    shop.command("order", "bob", "--times", "5")
    with shop.worker() as one, shop.worker() as other:
        urls = [url(each.ready()) for each in (one, other)]

        def states() -> list[Any]:
            return [ask(f"{each}/api/status")[1] for each in urls]

        async def watch() -> None:
            await until(lambda: [len(each["tasks"]) for each in states()] == [2, 2], "two tasks each")
            await until(lambda: all(each["state"] == "running" for each in states()), "all tasks run")
            assert sum(each["is_leader"] for each in states()) == 1
            for customer, amount in (("ann", 300), ("bob", 5)):
                for worker in (one, other):
                    await until(functools.partial(_has, worker, customer, amount), f"the total of {customer}")
                answers = [ask(f"{each}/total/{customer}/")[1] for each in urls]
                assert len({answer["at"] for answer in answers}) == 1  # its owner has answered both
                [found] = {json.dumps(ask(f"{each}/tables/totals?key={customer}")[1]) for each in urls}
                assert json.loads(found)["value"] == amount
            tasks = ask(f"{urls[0]}/router/topics")[1]
            assert sorted((each, len(topics[f"{shop.name}.orders"])) for each, topics in tasks.items()) == [
                (each, 2) for each in sorted(urls)
            ]
            for each in urls:
                assert 'isthmus_streams_tasks{app="' in ask(f"{each}/metrics")[1]

        run(watch())
        ready = [each["is_leader"] for each in states()]
        leader, left = (one, 1) if ready[0] else (other, 0)
        leader.kill()
        run(until(lambda: ask(f"{urls[left]}/api/status")[1]["is_leader"], "the other one leads"))


def test_commands_list_what_there_is_and_say_what_is_wrong(shop: Shop) -> None:
    assert json.loads(shop.command("--json", "agents")) == [
        {"name": "@shop.add_up", "topic": f"{shop.name}.orders", "help": "Add orders up."}
    ]
    assert json.loads(shop.command("--json", "tables")) == [
        {
            "name": "totals",
            "changelog": f"{shop.name}-totals-changelog",
            "store": "memory",
            "help": "Ordered so far, by customer.",
        }
    ]
    sent = json.loads(shop.command("send", "@add_up", "3", "--key", "cy", "--partition", "2"))
    assert (sent["topic"], sent["partition"], sent["offset"]) == (f"{shop.name}.orders", 2, 0)
    said = shop.command("--help")
    assert "Order something." in said
    assert f"Run the stream app {shop.name}" in said
    assert "no agent nope; it has shop.add_up" in shop.command("send", "@nope", "3", code=2)
    assert "No such option '--tims'. Did you mean '--times'?" in shop.command("order", "ann", "--tims", "3", code=2)
    busy = shop.broker.bootstrap.rpartition(":")[2]
    assert "the port is taken. Give another one as --web-port" in shop.command(
        "worker", "--web-port", busy, "--web-bind", "127.0.0.1", code=2
    )


def test_topics_are_declared_from_anywhere_unless_the_app_may_not(broker: BrokerProcess) -> None:
    async def program() -> tuple[int, str]:
        app = App("declares", broker=broker.bootstrap, topic_partitions=3)
        await app.topic("declared").maybe_declare()
        await app.topic("declared").declare()  # is there
        await app.stop()
        async with clients(broker.bootstrap) as (client,):
            await client.refresh_metadata(["declared"])
            count = len(client.partitions("declared"))
        app = App("declares", broker=broker.bootstrap, topic_allow_declare=False)
        with pytest.raises(AppError) as error:
            await app.topic("not-declared").declare()
        await app.stop()
        return count, str(error.value)

    assert run(program()) == (
        3, "app declares may create no topics (topic_allow_declare=False) and needs not-declared with 8 partitions",
    )  # fmt: skip


@pytest.mark.parametrize(
    "ending",
    ["asyncio.run(main())", "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\nloop.stop()"],
    ids=["run", "stopped"],
)
def test_a_script_sends_without_a_worker_and_loses_nothing_at_its_end(
    ending: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Faust's examples/concurrency.py does it so, too."""
    name = f"script-{len(ending)}"
    script = f"""
import asyncio
from isthmus.streams import App
app = App("{name}", broker="kafka://{broker.bootstrap}")
topic = app.topic("{name}")
async def main():
    for i in range(100):
        await topic.send(value=i)
    for i in range(1000):
        topic.send_soon(value=i)
{ending}
"""

    async def end() -> int:
        async with clients(broker.bootstrap) as (client,):
            tp = TopicPartition(name, 0)
            return (await Admin(client).list_offsets({tp: "latest"}))[tp][0]

    async def create() -> None:
        async with clients(broker.bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic(name, 1, -1, {})])

    run(create())
    path = tmp_path / "script.py"
    path.write_text(script)
    made = subprocess.run(
        [sys.executable, str(path)], env=workers.ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    assert run(end()) == 1100


def test_a_worker_runs_within_a_program_of_the_user_s_own(broker: BrokerProcess) -> None:
    async def program() -> dict[str, int]:
        app = App("embedded", broker=broker.bootstrap, web_enabled=False, broker_commit_interval=0.1)
        topic = app.topic("embedded.in", value_serializer="json")
        counts = app.Table("counts", default=int)

        @app.agent(topic)
        async def count(stream: Any) -> None:
            async for event in stream.events():
                counts[event.key.decode()] += 1

        async with clients(broker.bootstrap) as (client,):
            await Admin(client).create_topics([NewTopic("embedded.in", 2, -1, {})])
        await app.start()
        for key in ("a", "b", "a"):
            await topic.send(key=key, value=1)
        rows = await until(lambda: len(counts) == 2 and counts["a"] == 2 and dict(counts.items()), "rows")
        await app.stop()
        return rows

    assert run(program()) == {"a": 2, "b": 1}


def test_an_app_of_timers_and_pages_alone_needs_no_topic(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(
        f"""
import isthmus.streams as faust
app = faust.App("pages", broker="kafka://{broker.bootstrap}")
ticks = []
@app.timer(0.1)
async def tick():
    ticks.append(1)
@app.page("/ticks")
async def get(web, request):
    return web.json(len(ticks))
"""
    )
    with Worker(tmp_path, "pages", "isthmus.streams", f"{tmp_path}/pages.py:app", "--web-port=0") as worker:
        worker.ready()
        run(until(lambda: ask(f"{url(worker)}/ticks")[1] > 2, "ticks"))
        assert worker.end() == 0


def test_a_changed_file_starts_the_worker_again(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "reloaded.py"
    path.write_text(SHOP.read_text())
    arguments = ["isthmus.streams", f"{path}:app", "--web-port=0", "--reload"]
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        worker = Worker(tmp_path, "reloading", *arguments)
    finally:
        os.chdir(before)
    with worker:
        worker.ready()
        path.write_text(SHOP.read_text() + '\nsay("the new file")\n')
        run(until(lambda: "the new file" in worker.log and worker.log.count("ready ") == 2, "another start"))
        os.killpg(worker.process.pid, 2)
        assert worker.process.wait(20) == 0
