"""The web server of a worker, asked over a socket: the app's pages, the worker's own, and requests for others' keys."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from isthmus.client.partitioner import partition_for_key
from isthmus.client.types import Progress, TopicPartition
from isthmus.streams import App, web
from isthmus.streams.api.tables import Table
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.datacenters import STALLED, Standing
from isthmus.streams.engine.stores.global_store import GlobalStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.errors import AppError, RecordError
from isthmus.streams.runtime.copies import Copy
from isthmus.streams.runtime.datacenters import Datacenters, Known
from isthmus.streams.runtime.layout import Layout
from isthmus.streams.runtime.webserver import WebServer
from tests.running import in_loop, run_by

PARTITIONS = 4


@dataclass
class FakeWorker:
    """What the pages read of a `StreamWorker`: one that has some of the app's tasks."""

    app: App
    partitions: tuple[int, ...]
    url: str = ""
    name: str = "w"
    is_leader: bool = True
    is_rebalancing: bool = False
    restoring: tuple[TaskId, ...] = ()
    reading: tuple[str, ...] = ()
    failed: dict[TaskId, Any] = field(default_factory=dict)
    processed_total: int = 7
    left_out_total: int = 1
    unheard_ms: int = 0

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.app, dict.fromkeys(self.app.input_topics(), PARTITIONS), {})
        self.places = self.layout.places()
        self.running: dict[TaskId, Any] = {}
        for partition in self.partitions:
            id = TaskId("in", partition)
            stores = {"counts": MemoryStore(self.app.tables["counts"].spec)}
            task = Task("app", id, stores)
            task.set_start("in", Position(5))
            self.running[id] = SimpleNamespace(task=task, chained=())
        self.told = SimpleNamespace(owners={}, copy_owners={})
        self.held: dict[TaskId, Copy] = {}
        self.whole_at: dict[str, float] = {}  # global tables
        self.copies = SimpleNamespace(lags=dict, whole_at=lambda id: None)
        self.datacenters = Datacenters(self.app.id)
        self.client = SimpleNamespace(partitions=lambda topic: range(PARTITIONS))
        self.consumer = SimpleNamespace(
            progress=lambda: {TopicPartition("in", n): Progress(8, 9, 9, 9, 0) for n in self.partitions}
        )

    def copy(self, id: TaskId) -> Copy | None:
        return self.held.get(id)

    def restored_percent(self, id: TaskId) -> int | None:
        return 43 if id in self.restoring else None

    def global_table_whole_at(self, table: str) -> float | None:
        return self.whole_at.get(table)

    def stores(self, table: str) -> list[Any]:
        if table in self.app.global_stores:
            return [self.app.global_stores[table]]
        return [each.task.stores[table] for each in self.running.values()]

    def put(self, key: str, value: Any) -> None:
        partition = partition_for_key(key.encode(), PARTITIONS)
        self.running[TaskId("in", partition)].task.stores["counts"].set(key, value)


def made(**options: Any) -> tuple[App, Table]:
    app = App("app", **{"web_port": 0, **options})
    table = app.Table("counts", default=int, help="how often")

    @app.agent(app.topic("in"), tables=[table])
    async def count(stream: Any) -> None:
        """Counts."""

    return app, table


@asynccontextmanager
async def serving(app: App, worker: Any) -> AsyncIterator[str]:
    app.worker = worker
    server = WebServer(app, worker)
    await server.start()
    try:
        yield app.conf.canonical_url
    finally:
        await server.stop()


async def asked(url: str, method: str = "GET", **options: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else await answer.text()


@run_by(in_loop)
async def test_pages_are_functions_and_views() -> None:
    app, table = made()

    @app.page("/count/{word}/")
    async def count(web: web.View, request: web.Request, word: str) -> web.Response:
        return web.json({word: table[word]})

    @app.page("/users", name="users")
    class Users(web.View):
        async def get(self, request: web.Request) -> web.Response:
            return self.text(self.path_for("count", word="a b"))

        async def post(self, request: web.Request) -> web.Response:
            raise self.NotFound("no such user", user=(await request.json())["user"])

    worker = FakeWorker(app, (0, 1, 2, 3))
    worker.put("fox", 3)
    async with serving(app, worker) as url:
        assert await asked(f"{url}/count/fox/") == (200, {"fox": 3})
        assert await asked(f"{url}/users") == (200, "/count/a%20b/")
        assert await asked(f"{url}/users", "POST", json={"user": 3}) == (404, {"error": "no such user", "user": 3})
        assert await asked(f"{url}/users", "DELETE") == (405, {"error": "Method DELETE not allowed."})
        async with aiohttp.ClientSession() as session, session.delete(f"{url}/users") as refused:
            assert refused.headers["Allow"] == "GET,HEAD,POST"
        assert (await asked(f"{url}/users", "HEAD"))[0] == 200
        assert await asked(f"{url}/none") == (404, {"error": "there is no page /none"})


@run_by(in_loop)
async def test_a_page_that_fails_is_logged_and_shows_its_traceback_only_in_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, _ = made()

    @app.page("/broken")
    async def broken(web: web.View, request: web.Request) -> None:
        raise ValueError("secret")

    async with serving(app, FakeWorker(app, (0,))) as url:
        assert await asked(f"{url}/broken") == (500, {"error": "Internal server error."})
        assert "ValueError: secret" in caplog.text
        app.conf.debug = True
        status, said = await asked(f"{url}/broken")
    assert (status, said["error"]) == (500, "ValueError: secret")
    assert "Traceback" in said["traceback"]


@run_by(in_loop)
async def test_blueprints_are_views_below_a_prefix() -> None:
    app, _ = made()
    blueprint = web.Blueprint("users")

    @blueprint.route("/", name="list")
    async def users(web: web.View, request: web.Request) -> web.Response:
        return web.html("<b>all</b>")

    @blueprint.route("/{user}/", name="detail")
    class Detail(web.View):
        async def get(self, request: web.Request, user: str) -> web.Response:
            return self.bytes(self.url_for("users:detail", user=user).encode())

    app.web.blueprints.add("/user/", blueprint)
    async with serving(app, FakeWorker(app, (0,))) as url:
        assert await asked(f"{url}/user/") == (200, "<b>all</b>")
        assert await asked(f"{url}/user/9/") == (200, f"{url}/user/9/")


@run_by(in_loop)
async def test_a_request_goes_to_the_worker_that_has_the_key_with_body_and_answer() -> None:
    """Two workers of one app: what one does not have, it asks the other for, once."""
    urls: list[str] = []
    workers: list[FakeWorker] = []
    servers: list[WebServer] = []
    for mine in ((0, 1), (2, 3)):
        app, table = made()

        @app.page("/where/{word}")
        @app.table_route(table=table, match_info="word")
        async def where(view: web.View, request: web.Request, word: str) -> web.Response:
            return view.text(view.web.url, status=201, headers={"X-Seen": "1"})

        @app.page("/topic")
        @app.topic_route(app.agents[0].topic, query_param="word")
        async def of_topic(view: web.View, request: web.Request) -> web.Response:
            return view.text(view.web.url)

        worker = FakeWorker(app, mine)
        app.worker = worker
        server = WebServer(app, worker)  # type: ignore[arg-type]
        await server.start()
        urls.append(app.conf.canonical_url)
        workers.append(worker)
        servers.append(server)
    for worker, other in ((workers[0], 1), (workers[1], 0)):
        worker.told.owners = {TaskId("in", n): urls[other] for n in workers[other].partitions}
    try:
        for url in urls:
            of_each = {urls[0]: [0, 1], urls[1]: [2, 3]}
            changelogs = {each: {"app-counts-changelog": of_each[each]} for each in urls}
            assert await asked(f"{url}/router/") == await asked(f"{url}/router/counts/") == (200, changelogs)
            assert await asked(f"{url}/router/topics") == (200, {each: {"in": of_each[each]} for each in urls})
        for word in ("the", "quick", "brown", "fox"):
            owner = 0 if partition_for_key(word.encode(), PARTITIONS) < 2 else 1
            for url in urls:
                assert await asked(f"{url}/where/{word}") == (201, urls[owner])
                assert await asked(f"{url}/topic?word={word}") == (200, urls[owner])
            workers[owner].put(word, len(word))
            for url in urls:
                found = await asked(f"{url}/tables/counts?key={word}")
                here = {"table": "counts", "key": word, "value": len(word), "staleness_ms": 0, "worker": urls[owner]}
                assert found == (200, here)
                assert await asked(f"{url}/router/counts/{word}/") == (200, urls[owner])
        # The other one thinks that the key is here: it is not asked again, or the request would go in circles.
        for worker, other in ((workers[0], 1), (workers[1], 0)):
            worker.running.clear()
            worker.told.owners = {TaskId("in", n): urls[other] for n in range(PARTITIONS)}
        status, said = await asked(f"{urls[0]}/where/the")
        assert (status, said["error"]) == (503, f"the key has gone to {urls[0]}: try again later")
        assert (await asked(f"{urls[0]}/topic"))[0] == 400
    finally:
        for server in servers:
            await server.stop()


@run_by(in_loop)
async def test_a_key_whose_worker_is_not_known_or_is_gone_is_unavailable() -> None:
    app, _ = made()
    worker = FakeWorker(app, ())
    async with serving(app, worker) as url:
        status, said = await asked(f"{url}/tables/counts?key=the")
        task = TaskId("in", partition_for_key(b"the", PARTITIONS))
        assert (status, said["error"]) == (
            503, f"no worker with a web server is known that has task {task}: try again later",
        )  # fmt: skip
        gone = "http://127.0.0.1:9"
        worker.told.owners = dict.fromkeys((TaskId("in", n) for n in range(PARTITIONS)), gone)
        status, said = await asked(f"{url}/tables/counts?key=the")
        assert status == 503
        assert said["error"].startswith(f"{gone}, which has the key, does not answer: ")


@run_by(in_loop)
async def test_all_windows_of_a_key_are_one_answer() -> None:
    app = App("app", web_port=0)
    table = app.Table("counts", default=int).tumbling(10)

    @app.agent(app.topic("in"), tables=[table])
    async def agent(stream: Any) -> None: ...

    worker = FakeWorker(app, (0,))
    for start_ms, value in ((20_000, 2), (10_000, 1)):
        worker.stores("counts")[0].set(("the", start_ms), value)
    async with serving(app, worker) as url:
        said = (await asked(f"{url}/tables/counts?key=the"))[1]
        assert said["value"] == [{"start_ms": 10_000, "value": 1}, {"start_ms": 20_000, "value": 2}]


@run_by(in_loop)
async def test_who_may_have_lost_its_tasks_answers_for_them_only_within_a_bound() -> None:
    """One that was paused past its session does not know yet that another has its tasks."""
    app, table = made()

    @app.page("/mine/")
    @app.table_route(table, query_param="key")
    async def mine(view: Any, request: Any) -> Any:
        return view.json({})

    worker = FakeWorker(app, (0, 1, 2, 3), unheard_ms=12_000)
    worker.put("the", 5)
    async with serving(app, worker) as url:
        asking = f"{url}/tables/counts?key=the"
        strict = asking, f"{asking}&max_staleness_ms=11999", f"{url}/tables/counts?key=x"
        for each in (*strict, f"{url}/tables/counts", f"{url}/mine/?key=the", f"{url}/mine/?key=x"):
            status, said = await asked(each)
            assert status == 503 and "has not answered this worker for 12000 ms" in said["error"]
        said = (await asked(f"{asking}&max_staleness_ms=12000"))[1]
        assert (said["value"], said["staleness_ms"]) == (5, 12_000)
        worker.unheard_ms = 0
        assert (await asked(asking))[1]["staleness_ms"] == 0
        assert (await asked(f"{url}/mine/?key=the"))[0] == 200


@run_by(in_loop)
async def test_of_a_table_with_windows_a_copy_says_nothing() -> None:
    """It has no list of the windows of a key: that it has no row would be wrong."""
    app = App("app", web_port=0)
    table = app.Table("counts", default=int).tumbling(10)

    @app.agent(app.topic("in"), tables=[table])
    async def agent(stream: Any) -> None: ...

    worker = FakeWorker(app, ())
    copied(worker, "the", 5, age_s=0.0, row=("the", 20_000))
    async with serving(app, worker) as url:
        assert (await asked(f"{url}/tables/counts?key=the&max_staleness_ms=60000"))[0] == 503


@run_by(in_loop)
async def test_a_key_is_looked_for_wherever_what_was_typed_may_be_one() -> None:
    """A tuple may be typed with spaces; records with such a key have none."""
    app, _ = made()
    theirs = {}
    for each in ("rows", "others"):
        its_app, _ = made()
        theirs[each] = FakeWorker(its_app, ())
    worker = FakeWorker(app, ())
    key, typed = next(
        (key, typed)
        for key, typed in ((("a", n), f'["a", {n}]') for n in range(100))
        if len({partition_for_key(text.encode(), PARTITIONS) for text in (typed, typed.replace(" ", ""))}) == 2
    )
    where = partition_for_key(typed.replace(" ", "").encode(), PARTITIONS)
    theirs["rows"] = FakeWorker(theirs["rows"].app, (where,))
    theirs["rows"].stores("counts")[0].set(key, 7)
    theirs["others"] = FakeWorker(theirs["others"].app, tuple(n for n in range(PARTITIONS) if n != where))
    async with (
        serving(theirs["rows"].app, theirs["rows"]) as rows_url,
        serving(theirs["others"].app, theirs["others"]) as others_url,
        serving(app, worker) as url,
    ):
        worker.told.owners = {TaskId("in", n): rows_url if n == where else others_url for n in range(PARTITIONS)}
        asking = {"key": typed}
        assert (await asked(f"{url}/tables/counts", params=asking))[1]["value"] == 7
        theirs["rows"].stores("counts")[0].delete(key)
        assert (await asked(f"{url}/tables/counts", params=asking))[0] == 404
        worker.told.owners[TaskId("in", where)] = "http://127.0.0.1:9"
        assert (await asked(f"{url}/tables/counts", params=asking))[0] == 503, "it may be where nobody answers"


@run_by(in_loop)
async def test_what_only_python_has_is_json_all_the_same() -> None:
    app, _ = made()
    worker = FakeWorker(app, (0,))
    values = [2**70, "\ud800", {b"\xff": {2**65}, ("a", 1): None}, [float("nan"), 2**64], {None: UUID(int=1), 1: 2**65}]
    for number, value in enumerate(values):
        worker.stores("counts")[0].rows[number] = value
    worker.stores("counts")[0].rows[b"\xff\xfe"] = 1
    async with serving(app, worker) as url:
        rows = {each["key"]: each["value"] for each in (await asked(f"{url}/tables/counts"))[1]["rows"]}
        want = [2**70, "\ud800", {"\\xff": [2**65], '["a", 1]': None}, [None, 2**64]]
        assert [rows[n] for n in range(4)] == want
        assert rows[4] == {"null": str(UUID(int=1)), "1": 2**65}
        assert rows["\\xff\\xfe"] == 1
        said = await asked(f"{url}/tables/counts", params={"key": "\\xff\\xfe"})
        assert said[1]["value"] == 1, "a key that is no text is asked for as it is shown"
        for too_long in ("limit=", "key=a&max_staleness_ms="):
            assert (await asked(f"{url}/tables/counts?{too_long}{'9' * 5_000}"))[0] == 400


def copied(worker: FakeWorker, key: str, value: int, age_s: float, row: Any = None) -> TaskId:
    """The worker has a copy of the task that has the key, which is so old. row: the row's key, if it is another."""
    task = TaskId("in", partition_for_key(key.encode(), PARTITIONS))
    store = MemoryStore(worker.app.tables["counts"].spec)
    store.set(key if row is None else row, value)
    worker.held[task] = Copy({"counts": store}, asyncio.get_running_loop().time() - age_s)
    return task


@run_by(in_loop)
async def test_a_copy_that_is_new_enough_answers_and_says_how_old_it_is() -> None:
    app, _ = made()
    worker = FakeWorker(app, ())
    copied(worker, "the", 5, age_s=2.0)
    async with serving(app, worker) as url:
        status, said = await asked(f"{url}/tables/counts?key=the&max_staleness_ms=60000")
        assert (status, said["key"], said["value"]) == (200, "the", 5)
        assert 2_000 <= said["staleness_ms"] < 60_000
        assert (await asked(f"{url}/tables/counts?key=the&max_staleness_ms=1000"))[0] == 503
        assert (await asked(f"{url}/tables/counts?key=the"))[0] == 503, "who says nothing gets the owner's"
        assert (await asked(f"{url}/tables/counts?key=the&max_staleness_ms=-1"))[0] == 400
        other = next(key for key in "abcdefgh" if partition_for_key(key.encode(), PARTITIONS) in (
            id.partition for id in worker.held))  # fmt: skip
        status, said = await asked(f"{url}/tables/counts?key={other}&max_staleness_ms=60000")
        assert status == 404 and said["staleness_ms"] >= 2_000


@run_by(in_loop)
async def test_a_standby_elsewhere_answers_while_the_owner_is_gone_or_restores() -> None:
    app, _ = made()
    standby_app, _ = made()
    restoring_app, _ = made()
    worker, standby, restoring = FakeWorker(app, ()), FakeWorker(standby_app, ()), FakeWorker(restoring_app, ())
    task = copied(standby, "the", 5, age_s=0.5)
    restoring.restoring = (task,)
    async with (
        serving(standby_app, standby) as standby_url,
        serving(restoring_app, restoring) as restoring_url,
        serving(app, worker) as url,
    ):
        for owner in ("http://127.0.0.1:9", restoring_url):
            worker.told.owners, worker.told.copy_owners = {task: owner}, {task: (standby_url,)}
            status, said = await asked(f"{url}/tables/counts?key=the&max_staleness_ms=60000")
            assert (status, said["value"], said["worker"]) == (200, 5, standby_url)
            assert (await asked(f"{url}/tables/counts?key=the"))[0] == 503
        async with aiohttp.ClientSession() as session, session.get(f"{url}/tables/counts?key=the") as answer:
            assert answer.headers["Retry-After"] == "1"
            said = await answer.json()
        assert said["error"] == f"task {task}, which has the key, restores its tables here"
        worker.told.copy_owners = {task: (standby_url,)}
        assert (await asked(f"{url}/tables/counts?key=the&max_staleness_ms=1"))[0] == 503


@run_by(in_loop)
async def test_a_global_table_is_answered_by_any_worker_once_it_has_read_it() -> None:
    app = App("app", web_port=0)
    rates = app.GlobalTable("counts", key_type=UUID, value_type=Decimal)

    @app.agent(app.topic("in"), tables=[rates])
    async def agent(stream: Any) -> None: ...

    worker = FakeWorker(app, (), reading=("counts",), is_rebalancing=True)
    store = GlobalStore(rates.spec, [MemoryStore(rates.spec)], lambda key: 0)
    store.set(UUID(int=1), Decimal("1.50"))
    app.global_stores = {"counts": store}
    async with serving(app, worker) as url:
        asking = f"{url}/tables/counts?key={UUID(int=1)}"
        assert await asked(asking) == (503, {"error": "global table counts is not read to its end yet"})
        assert await asked(f"{url}/health") == (503, "reads global tables counts\n")
        worker.whole_at["counts"] = asyncio.get_running_loop().time() - 1
        status, said = await asked(asking)
        assert (status, said["value"]) == (200, "1.50") and said["staleness_ms"] >= 1_000
        assert (await asked(f"{asking}&max_staleness_ms=10"))[0] == 503
        assert (await asked(f"{url}/tables/counts?key={UUID(int=2)}"))[0] == 404


@run_by(in_loop)
async def test_rows_are_listed_up_to_a_limit_and_keys_are_found_in_their_own_type() -> None:
    app, _ = made()
    worker = FakeWorker(app, (0, 1, 2, 3))
    for key in (1, ("a", 2), b"x", "1"):
        worker.stores("counts")[0].set(key, str(key))
    async with serving(app, worker) as url:
        assert (await asked(f"{url}/tables/counts?limit=2"))[1]["rows"] == [
            {"key": 1, "value": "1"}, {"key": ["a", 2], "value": "('a', 2)"},
        ]  # fmt: skip
        assert (await asked(f"{url}/tables/counts"))[1]["rows_here"] == 4
        assert (await asked(f"{url}/tables/counts?limit=0"))[0] == 400
        assert (await asked(f"{url}/tables/counts?key=x"))[1]["value"] == "b'x'"
        assert await asked(f"{url}/table/counts/1/") == (200, "1")
        assert await asked(f"{url}/table/counts/unknown/") == (200, 0), "the table's default"
        assert (await asked(url + '/tables/counts?key=["a",2]'))[1]["value"] == "('a', 2)"
        status, said = await asked(f"{url}/tables/other?key=x")
        assert (status, said) == (404, {"error": "app app has no table other", "tables": ["counts"]})
        assert (await asked(f"{url}/tables/counts?key=unknown"))[0] == 404


@run_by(in_loop)
async def test_a_row_that_is_here_is_answered_here_whatever_its_key_s_partition() -> None:
    """An agent may store rows under other keys than its records have."""
    app, _ = made()
    word = next(each for each in "abcdefgh" if partition_for_key(each.encode(), PARTITIONS) != 0)
    worker = FakeWorker(app, (0,))
    worker.told.owners = dict.fromkeys((TaskId("in", n) for n in range(PARTITIONS)), "http://127.0.0.1:9")
    worker.stores("counts")[0].set(word, 1)
    async with serving(app, worker) as url:
        assert (await asked(f"{url}/tables/counts?key={word}"))[1]["value"] == 1


@run_by(in_loop)
async def test_status_health_and_metrics_say_the_same() -> None:
    app, _ = made()
    worker = FakeWorker(app, (0, 1, 2, 3))
    worker.put("the", 1)
    worker.datacenters.known["nyc"] = Known(Standing(STALLED, 3_500, "its mirror is 5 records behind in in"), 1, 4)
    async with serving(app, worker) as url:
        assert await asked(f"{url}/health") == (200, "ready\n")
        status = (await asked(f"{url}/api/status"))[1]
        assert (status["app"], status["state"], status["url"]) == ("app", "running", url)
        assert status["tasks"][0]["inputs"] == [{"topic": "in", "partition": 0, "position": 5, "end": 9, "lag": 4}]
        assert status["tables"][0]["rows_here"] == 1
        families = _families((await asked(f"{url}/metrics"))[1])
        assert families["isthmus_streams_processed"][()] == 7
        assert sum(families["isthmus_streams_lag"].values()) == 16
        [datacenter] = status["datacenters"]
        assert (datacenter["datacenter"], datacenter["state"], datacenter["tasks"]) == ("nyc", "stalled", 1)
        assert families["isthmus_streams_datacenter_complete_seconds"][("datacenter", "nyc"),] == 3.5
        assert families["isthmus_streams_datacenter_tasks"][("datacenter", "nyc"), ("state", "stalled")] == 1
        assert families["isthmus_streams_tasks"][("state", "running"),] == 4
        assert "<title>" in (await asked(f"{url}/"))[1]

        [failed, *_] = worker.running
        worker.running.pop(failed)
        worker.failed[failed] = SimpleNamespace(problem=RecordError("in-0 offset 3: no"))
        assert await asked(f"{url}/health") == (503, f"task {failed}: in-0 offset 3: no\n")
        assert (await asked(f"{url}/api/status"))[1]["tasks"][0]["state"] == "failed"
        worker.failed.clear()
        worker.is_rebalancing, worker.restoring = True, (failed,)
        assert await asked(f"{url}/health") == (503, f"restores {failed} (43 %)\n")
        assert [task["restored_percent"] for task in (await asked(f"{url}/api/status"))[1]["tasks"]] == [
            43,
            *[None] * 3,
        ]


def _families(text: str) -> dict[str, dict[tuple[Any, ...], float]]:
    """Samples by name and labels, without the app."""
    return {
        family.name: {_labels(sample.labels): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def _labels(of: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple((name, value) for name, value in of.items() if name != "app")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@run_by(in_loop)
async def test_a_port_that_was_asked_for_and_is_taken_is_an_error(taken_port: int) -> None:
    app, _ = made(web_port=taken_port, web_bind="127.0.0.1")
    with pytest.raises(AppError, match=f"cannot listen on 127.0.0.1:{taken_port}: the port is taken. Give another one"):
        await WebServer(app, None).start()


@run_by(in_loop)
async def test_the_default_port_gives_way_to_a_free_one(
    taken_port: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several workers on one machine need no configuration."""
    app, _ = made(web_port=None, web_bind="127.0.0.1")
    monkeypatch.setattr(type(app.conf).__dict__["web_port"], "_fixed", taken_port)
    async with serving(app, FakeWorker(app, (0,))) as url:
        assert (await asked(f"{url}/health"))[0] == 200
    assert f"port {taken_port} is taken" in caplog.text


@run_by(in_loop)
async def test_pages_that_are_switched_off_are_not_there() -> None:
    app, _ = made(web_tables_enabled=False, web_metrics_enabled=False)
    async with serving(app, FakeWorker(app, (0,))) as url:
        for path in ("/tables", "/table/", "/router/", "/metrics"):
            assert (await asked(url + path))[0] == 404, path


@run_by(in_loop)
async def test_a_page_of_the_app_takes_the_place_of_the_worker_s() -> None:
    app, _ = made()

    @app.page("/")
    async def own(view: web.View, request: web.Request) -> web.Response:
        return view.text("mine")

    async with serving(app, FakeWorker(app, (0,))) as url:
        assert await asked(f"{url}/") == (200, "mine")


def test_pages_that_cannot_be_say_why() -> None:
    app, table = made()

    async def page(view: Any, request: Any) -> None: ...

    app.page("/a")(page)
    with pytest.raises(AppError, match="app app has two pages at /a"):
        app.page("/a")(page)
    with pytest.raises(AppError, match="write '/b'"):
        app.page("b")(page)
    with pytest.raises(AppError, match="page /d: cors_options= is not possible: set the headers"):
        app.page("/d", cors_options={"*": {}})
    with pytest.raises(AppError, match=r"takes a subclass of View or an async function, not dict"):
        app.page("/c")(dict)
    with pytest.raises(AppError, match=r"a route needs one of query_param=, match_info= or exact_key="):
        app.table_route(table)
