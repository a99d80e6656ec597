"""How a worker is in its group, and what it says where that cannot be."""

import pytest

from isthmus.client import Client, TopicPartition
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams import App
from isthmus.streams.engine.task import TaskId
from isthmus.streams.runtime import group as group_module
from isthmus.streams.runtime.group import SPLIT_S, Split, refusal
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import in_loop, run_by

from .fakes import Journal
from .world import Group


def app_of(protocol: str, *topics: str) -> App:
    app = App("app", group_protocol=protocol)
    seen = app.Table("seen", default=int)

    @app.agent(app.topic(*topics), tables=[seen])
    async def count(stream):
        async for event in stream.events():
            seen[event.key] += 1

    return app


@pytest.mark.parametrize(
    ("protocol", "topics", "protocol_given", "assignor"),
    [
        ("classic", ["in", "also"], None, None),
        ("consumer", ["in"], "consumer", None),
        ("consumer", ["in", "also"], "consumer", "range"),
    ],
)
@run_by(in_loop)
async def test_tasks_of_several_topics_need_an_assignor_that_keeps_them_together(
    monkeypatch, protocol, topics, protocol_given, assignor
):
    given = []
    monkeypatch.setattr(
        group_module, "Consumer", lambda *_, **options: given.append(options) or Group(Journal(monkeypatch))
    )
    StreamWorker(app_of(protocol, *topics), Client("127.0.0.1:1"))
    [options] = given
    assert options.get("group_protocol") == protocol_given
    assert options.get("server_assignor") == assignor
    assert ("assignors" in options) == (protocol == "classic")
    assert options["auto_offset_reset"] == "none", "what is lost of an input is told, and not passed over"


def test_what_keeps_an_app_from_such_a_group_is_said_with_the_way_out():
    lacking = KafkaError.of(ErrorCode.UNSUPPORTED_ASSIGNOR, "group app: none is called range")
    said = refusal(app_of("consumer", "in", "also"), lacking)
    assert "group.consumer.assignors" in str(said)
    assert "none is called range" in str(said)
    assert refusal(app_of("classic", "in"), lacking) is None
    assert refusal(app_of("consumer", "in"), KafkaError.of(ErrorCode.GROUP_MAX_SIZE_REACHED)) is None


def test_a_task_that_is_here_in_part_is_told_of_once_when_it_stays_so(caplog):
    split, missing = Split("app"), {TaskId("also+in", 3): [TopicPartition("also", 3)]}
    split.seen(0.0, missing)
    split.seen(SPLIT_S - 1, missing)
    assert not caplog.records
    split.seen(SPLIT_S - 0.5, {})  # it came together, and parts again
    split.seen(SPLIT_S, missing)
    split.seen(2 * SPLIT_S - 1, missing)
    assert not caplog.records
    for now in (2 * SPLIT_S, 3 * SPLIT_S):
        split.seen(now, missing)
    [said] = [record.getMessage() for record in caplog.records]
    assert "also-3" in said
    assert "group_protocol='classic'" in said
