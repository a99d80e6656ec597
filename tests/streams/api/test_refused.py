"""What an app may not declare: the error names the thing and the way out, where it is declared."""

import re
from pathlib import Path
from typing import Any

import pytest

import isthmus.streams
from isthmus.streams import App, AppError, Record, StreamsError


async def agent(stream: Any) -> None:
    raise NotImplementedError


async def yielding(stream: Any) -> Any:
    yield stream


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.topic("a b"), "no topic can be called 'a b'"),
        (lambda app: app.topic(["a", "b"]), r"no topic can be called \['a', 'b'\]"),
        (lambda app: app.stream("a b").map(len), "no topic can be called 'a b'"),
        (lambda app: app.stream("a").to("b c"), "no topic can be called 'b c'"),
        (lambda app: app.stream("a").group_by(len, name="by ö"), "no topic can be called 'shop-by ö-repartition'"),
        (lambda app: app.topic("x", timestamp="at"), "timestamp= of topic x: 'at' is no function"),
        (lambda app: app.Table("t", default=0), "table t: default=0 is no function: write default=lambda: 0"),
        (lambda app: app.Table("t", defualt=int), "table t: there is no option defualt=: is it default=?"),
        (lambda app: app.Table("t", on_window_close=3), "on_window_close= of table t: 3 is no function"),
        (lambda app: app.agent(agent), "not <function agent at .*>: write @app.agent.., with parentheses"),
        (lambda app: app.agent(5), "an agent reads a topic, a channel or a source, and not 5"),
        (lambda app: app.agent("x", concurency=3), "an agent has no option concurency=: is it concurrency=?"),
        (lambda app: app.agent("x", topics="y"), "an agent has no option topics=: declare the topic with it, for @app"),
        (lambda app: app.agent("x", internal=True), "an agent has no option internal=: declare the topic with it"),
        (lambda app: app.agent(app.topic("x"), concurency=3), "no option concurency=: is it concurrency="),
        (lambda app: app.agent("x", sink=app.topic("out")), "sink= of an agent is a list, and not <Topic out>"),
        (lambda app: app.agent("x", sink="out"), "sink= of an agent is a list, and not 'out'"),
        (
            lambda app: app.agent("x", name="n", sink=["out"])(yielding),
            r"agent n: its sink 'out' is no topic, channel, agent or function: a topic is app.topic\('out'\)",
        ),
        (lambda app: app.stream(3), r"app.stream\(\) takes topics or their names, and not 3"),
    ],
)
def test_what_is_refused(declare: Any, message: str) -> None:
    with pytest.raises(AppError, match=message):
        declare(App("shop"))


def test_an_app_may_declare_topics_in_its_own_way() -> None:
    class Own(App):
        def topic(self, *topics: str, **options: Any) -> Any:
            return super().topic(*topics, **{"partitions": 8, **options})

    app = Own("shop")
    assert [app.agent(name, key_type=str)(yielding).reads.partitions for name in "ab"] == [8, 8]


@pytest.mark.parametrize("several", [set, iter, lambda topics: dict.fromkeys(topics).keys()])
def test_sinks_are_any_collection(several: Any) -> None:
    app = App("shop")
    topics = [app.topic("out"), app.topic("more")]
    assert set(app.agent("x", sink=several(topics))(yielding).sinks) == set(topics)
    unwanted: Any = False
    assert app.agent("x", sink=unwanted)(yielding).sinks == []


def test_an_option_of_a_record_that_is_not_there_is_named() -> None:
    with pytest.raises(TypeError, match="record Order: there is no option serialiser=: is it serializer="):
        type("Order", (Record,), {}, serialiser="json")


def test_bases_of_the_apps_own_say_what_they_do_not_take() -> None:
    class Tagged:
        def __init_subclass__(cls, tag: str) -> None:
            raise TypeError(f"tag {tag!r} must be lower case")

    with pytest.raises(TypeError, match="tag 'UP' must be lower case"):
        type("Order", (Record, Tagged), {}, tag="UP")


def test_what_docs_name_is_in_the_package() -> None:
    pages = "".join(page.read_text() for page in (Path(__file__).parents[3] / "docs").glob("how-to/*.md"))
    errors, more = [], [StreamsError]
    while more:
        errors += more
        more = [each for one in more for each in one.__subclasses__() if each.__module__.startswith("isthmus.streams")]
    named = [each.__name__ for each in errors if re.search(rf"`{each.__name__}`", pages)]
    assert "NoReply" in named and [each for each in named if not hasattr(isthmus.streams, each)] == []
    assert not re.findall(r"from isthmus\.streams\.(?:api|engine|runtime)\S* import .*", pages)
