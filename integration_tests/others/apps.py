"""Applications of other people's making, unmodified: each runs on a broker until it has left there what it must."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration_tests.brokers import ROOT
from integration_tests.peers.peers import POM

from . import faust_apps, kafka_streams, mirror_maker, transactional_copier
from .processes import Brokers


@dataclass(frozen=True)
class App:
    """what: what it uses of a broker. run(brokers, programs, folder): AssertionError where it leaves something else.

    programs: a folder that keeps what was made for one app for the next; folder: for what this run writes.
    """

    name: str
    version: str
    what: str
    run: Callable[[Brokers, Path, Path], None]


def _locked(package: str) -> str:
    [found] = re.findall(rf"(?m)^{package}==(\S+)", (ROOT / "requirements" / "faust.lock").read_text())
    return found


FAUST = _locked("faust-streaming")
[TOOLS] = re.findall(r"<tools.version>(.*?)<", POM.read_text())

APPS = (
    App("faust-streaming, word count", FAUST, "one agent sends to another by key; a table; restored from its changelog",
        faust_apps.word_count),
    App("faust-streaming, page views", FAUST, "a stream grouped anew by a field; a table; restored from its changelog",
        faust_apps.page_views),
    App("faust-streaming, windowed table", FAUST, "tumbling windows by a field, each sum sent on; restored likewise",
        faust_apps.windowed_table),
    App("Kafka Streams, word count", TOOLS, "repartition topic, changelog of a store, restored from it alone",
        kafka_streams.word_count),
    App("MirrorMaker 2, between two brokers", TOOLS, "records of every codec, stopped and started; offsets of a group",
        mirror_maker.mirror),
    App("Kafka Streams, word count, exactly_once_v2", TOOLS, "the same in transactions; it and its broker are killed",
        kafka_streams.word_count_once),
    App("MirrorMaker 2, exactly once", TOOLS, "the same in transactions; it and a broker are killed",
        mirror_maker.mirror_once),
    App("Kafka's TransactionalMessageCopier", TOOLS,
        "transactions with offsets, aborted and killed at random; its broker killed", transactional_copier.copy),
    App("Kafka's TransactionalMessageCopier, in a group", TOOLS, "the same by two as members; their broker killed",
        transactional_copier.copy_in_group),
)  # fmt: skip
