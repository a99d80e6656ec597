# mypy: ignore-errors
"""Pages of a worker, as Faust's users write them: `python pages.py worker`."""

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

import faust
from aiohttp.web import HTTPForbidden, HTTPFound, HTTPNotFound
from faust import web
from faust.web import Blueprint, View, gives_model, takes_model

NAME = os.environ["APP_NAME"]
app = faust.App(NAME, broker=os.environ["APP_BROKER"], topic_partitions=4, store="memory://")
words = app.topic(f"{NAME}.words", key_type=str, value_type=str)
counts = app.Table("counts", default=int, help="How often.", partitions=4)


class Color(Enum):
    RED = "red"


class Point(faust.Record, serializer="json", include_metadata=False):
    x: int
    y: int = 0


@app.agent(words)
async def count(stream):
    async for word in stream:
        counts[word] += 1


# --- Answers ----------------------------------------------------------------------------------------


@app.page("/text")
async def text(self, request):
    """Says ä."""
    return self.text("plain ä")


@app.page("/html")
async def html(self, request):
    return self.html("<b>bold</b>", headers={"X-Mine": "1"})


@app.page("/bytes")
async def raw(self, request):
    return self.bytes(b"\x00\xff")


@app.page("/png")
async def png(self, request):
    return self.bytes(b"\x89PNG", content_type="image/png")


@app.page("/csv")
async def csv(self, request):
    return self.text("a,b", content_type="text/csv", status=203, reason="Mine", headers={"X-Mine": "2"})


@app.page("/json")
async def json(self, request):
    return self.json({"a": [1, 2.5, None, True, "ä"]}, status=201, headers={"X-Mine": "3"})


@app.page("/json/own-type")
async def json_of_a_type(self, request):
    return self.json([], content_type="application/problem+json")


VALUES = {
    "record": Point(1),
    "records": [Point(1), {"p": Point(2, 3)}],
    "datetime": datetime(2020, 1, 2, 3, 4, 5, 678),
    "datetime of UTC": datetime(2020, 1, 2, tzinfo=UTC),
    "date": date(2020, 1, 2),
    "decimal": Decimal("1.50"),
    "uuid": UUID(int=7),
    "bytes": b"abc",
    "tuple": (1, 2),
    "set": {1},
    "enum": Color.RED,
    "numbers as keys": {1: 2, 1.5: 3, None: 4},
    "object": object(),
}


@app.page("/value/{name}")
async def value(self, request, name):
    return self.json({name: VALUES[name]})


@app.page("/error")
async def error(self, request):
    return self.error(418, "teapot", headers={"X-Mine": "4"}, more=1)


@app.page("/notfound")
async def notfound(self, request):
    return self.notfound("nobody", who="x")


# --- Requests ---------------------------------------------------------------------------------------


@app.page("/path/{name}/{number:\\d+}/")
async def matched(self, request, name, number):
    return self.json([name, number, dict(request.match_info), request.path])


@app.page("/query")
async def query(self, request):
    return self.json([dict(request.query), request.query.getall("a", []), request.query_string])


@app.page("/seen")
async def seen(self, request):
    return self.json([request.method, request.headers.get("X-Sent"), dict(request.cookies), request.can_read_body])


@app.page("/thing/{id}")
class Thing(View):
    """Has some methods."""

    def __post_init__(self):
        self.things = {"1": "one"}

    async def get(self, request, id):
        if id not in self.things:
            raise self.NotFound("no such thing", id=id)
        return self.json(self.things[id])

    async def post(self, request: web.Request, id) -> web.Response:
        self.things[id] = (await request.json())["name"]
        return self.json({"id": id}, status=201, headers={"Location": self.path_for("Thing", id=id)})

    async def put(self, request, id):
        return self.text(await request.text())

    async def patch(self, request, id):
        return self.bytes(await self.read_request_content(request))

    async def delete(self, request, id):
        self.things.pop(id)
        return self.text("", status=204)


@app.page("/form")
class Form(View):
    async def post(self, request):
        return self.json(dict(await request.post()))


@app.page("/point")
class PointView(View):
    @takes_model(Point)
    @gives_model(Point)
    async def post(self, request, point):
        return Point(point.y, point.x)


@app.page("/twice", name="double")
async def twice(self, request):
    return self.json([self.view_name, self.path_for("double"), self.path_for("count:word", word="a/b ä")])


@app.page("/options")
class Options(View):
    async def options(self, request):
        return self.text("mine")

    async def head(self, request):
        return self.text("", headers={"X-Mine": "5"})


# --- Errors -----------------------------------------------------------------------------------------


@app.page("/raise/{what}")
async def raising(self, request, what):
    if what == "web":
        raise self.ServerError("mine", code=409, more=[1])
    if what == "redirect":
        raise HTTPFound("/text")
    if what == "forbidden":
        raise HTTPForbidden
    if what == "gone":
        raise HTTPNotFound(text="mine")
    if what == "crash":
        raise ValueError("secret")
    if what == "nothing":
        return
    raise getattr(self, what)()


# --- Parts of an app --------------------------------------------------------------------------------

blueprint = Blueprint("count")


@blueprint.route("/", name="list")
class Words(View):
    async def get(self, request):
        return self.json(dict(counts.items()))


@blueprint.route("/{word}/", name="word")
@app.table_route(table=counts, match_info="word")
async def word(self, request, word):
    return self.json({word: counts[word]})


@blueprint.route("/by-query/of")
@app.table_route(table=counts, query_param="word")
async def by_query(self, request):
    return self.json(counts[request.query["word"]])


@blueprint.route("/by-key/of")
@app.table_route(table=counts, exact_key="fox")
async def by_key(self, request):
    return self.json(counts["fox"])


@blueprint.route("/by-topic/{word}")
@app.topic_route(words, match_info="word")
async def by_topic(self, request, word):
    return self.json(word)


@blueprint.route("/say/{word}")
class Say(View):
    async def post(self, request, word):
        await words.send(key=word, value=word)
        return self.text(word)


app.web.blueprints.add("/words", blueprint)
app.web.add_static("/files", Path(__file__).parent)

if __name__ == "__main__":
    app.main()
