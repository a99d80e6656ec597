"""ConsoleProducer, ConsoleConsumer, VerifiableProducer, VerifiableConsumer: run unchanged, compared with Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Both
from .tools import Side, Tools, alone

pytestmark = pytest.mark.soak  # two JVMs a command: minutes


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_typed_is_read(both: Both, codec: str) -> None:
    topic = f"typed-{codec}"
    text = "".join(f"header:x\tkey {n}\tvalue {n} ä\n" for n in range(50))
    properties = ("parse.key=true", "parse.headers=true")
    reader = [part for each in properties for part in ("--reader-property", each)]
    sent = both("ConsoleProducer", "--topic", topic, "--compression-codec", codec, *reader, stdin=text)
    assert sent.exit == 0
    shown = ("print.key=true", "print.offset=true", "print.partition=true", "print.headers=true")
    formatter = [part for each in shown for part in ("--formatter-property", each)]
    begin = ("--topic", topic, "--timeout-ms", "15000")
    read = both("ConsoleConsumer", *begin, "--from-beginning", "--max-messages", "50", *formatter)
    assert len(read.out.splitlines()) == 50
    assert read.out.splitlines()[7] == "Partition:0 Offset:7 header:x key 7 value 7 ä"
    read = both("ConsoleConsumer", *begin, "--partition", "0", "--offset", "48", "--max-messages", "2")
    assert read.out == "value 48 ä\nvalue 49 ä"


def test_a_group_goes_on_where_it_was(both: Both) -> None:
    both("ConsoleProducer", "--topic", "twice", stdin="".join(f"{n}\n" for n in range(10)))
    read = ("--topic", "twice", "--group", "reader", "--from-beginning", "--timeout-ms", "15000")
    assert both("ConsoleConsumer", *read, "--max-messages", "4").out.split() == ["0", "1", "2", "3"]
    assert both("ConsoleConsumer", *read, "--max-messages", "6").out.split() == ["4", "5", "6", "7", "8", "9"]
    read_committed = ("--isolation-level", "read_committed", "--group", "committed")
    assert len(both("ConsoleConsumer", *read[:2], *read_committed, *read[4:], "--max-messages", "10").out.split()) == 10


def events(out: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    for each in found:
        for name in ("timestamp", "target_throughput", "avg_throughput"):
            each.pop(name, None)
    return found


def test_verifiable_producer_and_consumer(tools: Tools, ours: Side, stock: Side) -> None:
    told = []
    for side in (ours, stock):
        made = tools.run("TopicCommand", "--bootstrap-server", side.bootstrap, "--create", "--topic", "verified",
                         "--partitions", "1")  # fmt: skip
        assert made.exit == 0
        sent = alone("VerifiableProducer", "--bootstrap-server", side.bootstrap, "--topic", "verified",
                         "--max-messages", "200", "--acks", "-1", "--value-prefix", "7")  # fmt: skip
        read = alone("VerifiableConsumer", "--bootstrap-server", side.bootstrap, "--topic", "verified",
                         "--group-id", "verifying", "--max-messages", "200", "--verbose",
                         "--reset-policy", "earliest")  # fmt: skip
        assert (sent.exit, read.exit) == (0, 0), sent.err + read.err
        told.append((events(sent.out), events(read.out)))
    (sent_ours, read_ours), (sent_stock, read_stock) = told
    assert sent_ours == sent_stock
    assert sum(each["name"] == "producer_send_success" for each in sent_ours) == 200

    def summary(found: list[dict[str, Any]]) -> tuple[list[tuple[int, int, str]], list[Any], set[str]]:
        """How many polls it took is chance; what they gave is not."""
        read = [each for each in found if each["name"] == "record_data"]
        records = [(each["partition"], each["offset"], each["value"]) for each in read]
        moved = [each["partitions"] for each in found if each["name"].startswith("partitions_")]
        return records, moved, {each["name"] for each in found}

    assert summary(read_ours) == summary(read_stock)
    assert [offset for _, offset, _ in summary(read_ours)[0]] == list(range(200))
