"""Topics that a program declares, on clusters that do not know all of their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from isthmus.client.admin import NewTopic
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.streams import App
from isthmus.streams.runtime import declaring
from isthmus.streams.runtime.layout import BETWEEN_OPTIONS
from tests.running import in_loop, run_by


class Cluster:
    """A client and an Admin of a cluster that refuses some options, one at a time, in Kafka's words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *unknown: str) -> None:
        self.unknown = unknown
        self.made: list[NewTopic] = []
        self.taken: list[str] = []  # names of topics that another worker has just made
        monkeypatch.setattr(declaring, "Admin", lambda client: self)

    async def refresh_metadata(self, topics: Sequence[str]) -> None: ...

    def partitions(self, topic: str) -> list[int]:
        return []

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        for topic in topics:
            if topic.name in self.taken:
                raise KafkaError.of(ErrorCode.TOPIC_ALREADY_EXISTS, topic.name)
            for name in self.unknown:
                if name in topic.configs:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic {topic.name}: Unknown topic config name: {name}")
            self.made.append(topic)


async def create(cluster: Any, options: dict[str, str]) -> None:
    await declaring.create(cluster, App("app").conf, {"t": (2, options)})


@run_by(in_loop)
async def test_a_topic_is_made_without_the_newer_options_that_a_cluster_does_not_know(monkeypatch):
    cluster = Cluster(monkeypatch, *declaring.NEWER_OPTIONS)
    await create(cluster, BETWEEN_OPTIONS)
    [topic] = cluster.made
    assert dict(topic.configs) == {
        name: value for name, value in BETWEEN_OPTIONS.items() if not name.startswith("message.timestamp.")
    }


@run_by(in_loop)
async def test_an_option_of_the_app_that_the_cluster_does_not_know_is_an_error(monkeypatch):
    cluster = Cluster(monkeypatch, "retention.hours")
    with pytest.raises(KafkaError, match=r"Unknown topic config name: retention\.hours"):
        await create(cluster, {"retention.hours": "1", **BETWEEN_OPTIONS})
    assert cluster.made == []


@run_by(in_loop)
async def test_a_topic_that_another_worker_makes_meanwhile_is_as_good(monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.taken.append("t")
    await create(cluster, {})
    assert cluster.made == []
