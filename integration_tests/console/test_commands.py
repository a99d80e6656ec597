"""Every command that asks a cluster: what it prints, for people and programs, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from base64 import b64decode
from pathlib import Path

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.console.commands import TIMEOUT_S, begun, error, isthmus, said
from isthmus.client import Client, Producer


@pytest.fixture
def at(isthmus_broker: BrokerProcess) -> tuple[str, str]:
    return "-b", isthmus_broker.bootstrap


def lines(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(count))


def test_what_is_produced_is_consumed(at: tuple[str, str], tmp_path: Path):
    answer = isthmus(
        "produce", "words", "-k", ":", "--compression", "zstd", "--json", *at, folder=tmp_path, stdin="k:v\n:e\n"
    )
    assert json.loads(said(answer)) == {"records": 2}
    assert said(isthmus("produce", "words", *at, folder=tmp_path, stdin="no key\n")) == ""
    assert said(isthmus("consume", "words", "-e", *at, folder=tmp_path)) == "k\tv\n\te\nno key\n"
    rows = said(isthmus("consume", "words", "-e", "--from", "2", "--json", *at, folder=tmp_path)).splitlines()
    [row] = map(json.loads, rows)
    assert row.pop("timestamp_ms") > 0
    assert row == {"topic": "words", "partition": 0, "offset": 2, "key": None, "value": "no key", "headers": []}


def test_headers_tombstones_and_times(at: tuple[str, str], tmp_path: Path):
    sent = ("produce", "told", "-k", ":", "--null", "-", "-H", "from=web", *at)
    said(isthmus(*sent, folder=tmp_path, stdin="a:1\na:-\n"))
    rows = said(isthmus("consume", "told", "-e", "--json", *at, folder=tmp_path)).splitlines()
    assert [json.loads(row)["value"] for row in rows] == ["1", None]
    assert json.loads(rows[1])["headers"] == [{"name": "from", "value": "web"}]
    old = {"key": "old", "value": "0", "timestamp_ms": 1_000, "partition": 0}
    records = "".join(f"{line}\n" for line in (json.dumps(old), *rows))
    said(isthmus("topic", "create", "copy", "-p", "1", "--set", "retention.ms=-1", *at, folder=tmp_path))
    said(isthmus("produce", "copy", "--records", *at, folder=tmp_path, stdin=records))
    assert said(isthmus("consume", "copy", "-e", "--null", "NULL", *at, folder=tmp_path)) == "old\t0\na\t1\na\tNULL\n"
    for start, count in (("-1h", 2), ("1970-01-01T00:00:01Z", 3), ("2", 1)):
        text = said(isthmus("consume", "copy", "-e", "-l", "--from", start, *at, folder=tmp_path))
        assert len(text.splitlines()) == count
    assert text.startswith("0:2\t") and text.endswith("\tfrom=web\ta\t\n")
    found = error(isthmus("produce", "copy", "--records", *at, folder=tmp_path, stdin='{"partition": 9}\n'))
    assert found == "topic copy has no partition 9: it has 1, from 0"


def test_a_topic_is_altered_whole_or_not_at_all(at: tuple[str, str], tmp_path: Path):
    def described() -> tuple[int, dict[str, str]]:
        facts = json.loads(said(isthmus("topic", "describe", "altered", "--json", *at, folder=tmp_path)))
        return len(facts["partitions"]), facts["options"]

    alter = ("topic", "alter", "altered", *at)
    said(isthmus("topic", "create", "altered", "-p", "2", "--set", "retention.ms=7", *at, folder=tmp_path))
    for arguments, told in (
        ((), "nothing to change"),
        (("--partitions", "1"), "topic altered has 2 partitions, and none can be taken away"),
        (("--partitions", "3", "--set", "retention.ms=soon"), "retention.ms"),
        (("--set", "retention.ms=1", "--unset", "retention.ms"), "both in --set and in --unset"),
        (("--set", "retention.ms=1", "--partitions", "1000000"), "altered"),
    ):
        assert told in error(isthmus(*alter, *arguments, folder=tmp_path))
        assert described() == (2, {"retention.ms": "7"})
    more = ("--partitions", "3", "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    assert said(isthmus(*alter, *more, folder=tmp_path)) == "changed altered\n"
    assert described() == (3, {"cleanup.policy": "compact"})
    assert "there is no topic none" in error(isthmus("topic", "alter", "none", "-p", "3", *at, folder=tmp_path))


def test_what_a_transaction_aborted_is_consumed_only_as_long_as_nothing_else_is_said(
    at: tuple[str, str], tmp_path: Path
):
    async def produce() -> None:
        client = Client(at[1])
        await client.start()
        producer = Producer(client, transactional_id="console")
        await producer.start()
        async with producer.transaction():
            producer.send("halves", b"committed")
        await producer.begin_transaction()
        await producer.send("halves", b"aborted")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("halves", b"open")
        committed = isthmus("consume", "halves", "-e", "--isolation", "read_committed", *at, folder=tmp_path)
        assert said(committed) == "committed\n"
        assert said(isthmus("consume", "halves", "-e", *at, folder=tmp_path)) == "committed\naborted\nopen\n"
        await producer.close()
        await client.close()

    asyncio.run(produce())


def test_what_is_no_text_is_consumed_as_base64(at: tuple[str, str], tmp_path: Path):
    said(isthmus("produce", "bytes", "-k", ":", *at, folder=tmp_path, stdin=b"\xff:\x80\n"))
    [row] = map(json.loads, said(isthmus("consume", "bytes", "-e", "--json", *at, folder=tmp_path)).splitlines())
    assert "key" not in row and "value" not in row
    assert [b64decode(row["key_base64"]), b64decode(row["value_base64"])] == [b"\xff", b"\x80"]
    assert said(isthmus("consume", "bytes", "-e", *at, folder=tmp_path)) == "\\xff\t\\x80\n"


def test_topics_are_made_described_and_deleted(at: tuple[str, str], tmp_path: Path):
    made = isthmus(
        "topic", "create", "made", "-p", "2", "--set", "cleanup.policy=compact", "--json", *at, folder=tmp_path
    )
    assert json.loads(said(made)) == {"created": "made"}
    text = said(isthmus("topic", "describe", "made", *at, folder=tmp_path))
    assert "cleanup.policy = compact" in text and "note: " not in text
    facts = json.loads(said(isthmus("topic", "describe", "made", "--json", *at, folder=tmp_path)))
    assert [row["partition"] for row in facts["partitions"]] == [0, 1]
    assert facts["options"] == {"cleanup.policy": "compact"}
    assert "made" in said(isthmus("topic", "list", *at, folder=tmp_path))
    said(isthmus("topic", "create", "kept", "--set", "file.delete.delay.ms=10000", *at, folder=tmp_path))
    text = said(isthmus("topic", "describe", "kept", *at, folder=tmp_path))
    assert "file.delete.delay.ms = 10000" in text
    assert "note: file.delete.delay.ms has no effect here: who reads a segment" in " ".join(text.split())
    assert said(isthmus("topic", "delete", "made", *at, folder=tmp_path)) == "deleted made\n"
    assert "made" not in said(isthmus("topic", "list", *at, folder=tmp_path))


def test_a_group_keeps_what_was_printed_and_no_more(at: tuple[str, str], tmp_path: Path):
    said(isthmus("produce", "many", *at, folder=tmp_path, stdin=lines(1000)))
    for begin in (0, 10):
        text = said(isthmus("consume", "many", "-g", "readers", "-n", "10", *at, folder=tmp_path))
        assert text == "".join(f"line {n}\n" for n in range(begin, begin + 10))
    facts = json.loads(said(isthmus("group", "describe", "readers", "--json", *at, folder=tmp_path)))
    [row] = facts["offsets"]
    assert row == {"topic": "many", "partition": 0, "committed_offset": 20, "end_offset": 1000, "lag": 980}
    assert "980" in said(isthmus("group", "describe", "readers", *at, folder=tmp_path))
    groups = json.loads(said(isthmus("group", "list", "--json", *at, folder=tmp_path)))
    assert {"group": "readers", "state": "Empty", "type": "classic", "protocol": "consumer"} in groups
    rest = said(isthmus("consume", "many", "-g", "readers", "-e", *at, folder=tmp_path))
    assert rest.splitlines()[0] == "line 20" and len(rest.splitlines()) == 980


def test_a_group_keeps_what_was_printed_before_ctrl_c(at: tuple[str, str], tmp_path: Path):
    said(isthmus("produce", "stopped", *at, folder=tmp_path, stdin=lines(30)))
    with begun("consume", "stopped", "-g", "stopped", *at, text=True) as process:
        assert process.stdout and process.stderr
        assert [process.stdout.readline() for _ in range(30)][-1] == "line 29\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        assert process.stderr.read() == ""
    [row] = json.loads(said(isthmus("group", "describe", "stopped", "--json", *at, folder=tmp_path)))["offsets"]
    assert (row["committed_offset"], row["lag"]) == (30, 0)


def test_a_reader_that_goes_away_ends_it_without_a_word(at: tuple[str, str], tmp_path: Path):
    said(isthmus("produce", "headed", *at, folder=tmp_path, stdin=lines(50_000)))
    with begun("consume", "headed", *at) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"line 0\n"
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 1
        assert process.stderr.read() == b""


@pytest.fixture(scope="module")
def there(isthmus_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The topic of this name, with one record."""
    folder = tmp_path_factory.mktemp("there")
    said(isthmus("produce", "there", "-b", isthmus_broker.bootstrap, folder=folder, stdin="x\n"))


NAMING_A_TOPIC = (
    "produce", "consume", "consume -g g", "topic describe", "topic delete", "topic create", "topic create --if-missing",
)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("topic describe nope", "there is no topic nope"),
        ("consume there --isolation serializable", "write read_uncommitted or read_committed"),
        ("topic delete nope", "nope"),
        ("topic create t --set retention.ms", "--set retention.ms: write it as name=value"),
        ("topic create t --set =1", "--set =1: write it as name=value"),
        ("topic create t --set retention.ms=soon", "retention.ms"),
        ("topic create t --set no.such=1", "no.such"),
        ("topic create t -p 0", "partitions"),
        ("topic create t --replication-factor 3", "replicat"),
        ("topic create there", "already exists"),
        ("consume nope", "there is no topic nope: `isthmus topic list`"),
        ("consume nope -g g -e", "there is no topic nope: `isthmus topic list`"),
        ("consume there --from soon", "--from soon: write earliest, latest, an offset, or a time"),
        ("consume there --from -1", "--from -1: write earliest, latest, an offset, or a time"),
        ("consume there --from 99", "there-0 ends at offset 1"),
        ("consume there -p 7", "topic there has no partition 7: it has 1, from 0"),
        ("consume there -g g --from 0", "leave out --partition and --from"),
        ("consume there -g g -p 0", "leave out --partition and --from"),
        ("produce there -p 7", "topic there has no partition 7: it has 1, from 0"),
        ("produce there -k :", "line 1 has no ':'"),
        ("produce there --compression brotli", "none, gzip, snappy, lz4, zstd"),
        *((f"{command} in/valid", "Topic name is invalid: 'in/valid'") for command in NAMING_A_TOPIC),
        ("group describe nope", "there is no group nope: `isthmus group list`"),
        ("group alter g", "say --set name=value or --unset name"),
        ("group alter g --set 5", "--set 5: write it as name=value"),
    ],
)
@pytest.mark.usefixtures("there")
def test_errors_are_one_line(command: str, named: str, at: tuple[str, str], tmp_path: Path):
    text = error(isthmus(*command.split(), *at, folder=tmp_path, stdin="text\n"))
    assert named in text and len(text.splitlines()) == 1, text


@pytest.mark.parametrize("command", ["topic list", "group list", "mirror status", "consume t", "produce t"])
def test_a_cluster_that_does_not_answer_is_named_soon(command: str, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        start = time.monotonic()
        text = error(isthmus(*command.split(), "-b", address, folder=tmp_path))
    assert address in text and "does a broker run there?" in text
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1:x", ":9092"])
def test_what_is_no_address_is_said(address: str, tmp_path: Path):
    assert f"'{address}' is not HOST:PORT" in error(isthmus("topic", "list", "-b", address, folder=tmp_path))


def test_nothing_yet_is_said_in_words_and_as_an_empty_array(at: tuple[str, str], tmp_path: Path):
    text = said(isthmus("mirror", "status", *at, folder=tmp_path))
    assert text == "no mirror has written into this cluster yet\n"
    assert json.loads(said(isthmus("mirror", "status", "--json", *at, folder=tmp_path))) == []


def test_a_broker_is_told_where_its_data_goes(tmp_path: Path):
    assert "isthmus broker --data DIR --listen" in error(isthmus("broker", folder=tmp_path))
    assert "--set" in said(isthmus("broker", "--help", folder=tmp_path))
    for word in ("server.properties", "chekc"):
        text = error(isthmus("broker", word, folder=tmp_path))
        assert f"'{word}'" in text and "check, drain, to-kafka, unregister" in text
    done = isthmus("broker", "--data", "d", "--set", "nope", folder=tmp_path)
    assert done.returncode == 2 and "NAME=VALUE" in done.stderr


def test_a_wrong_worker_is_one_line(at: tuple[str, str], tmp_path: Path):
    assert error(isthmus("worker", "gone.py:app", *at, folder=tmp_path), 2) == "there is no file gone.py"


@pytest.mark.parametrize(
    ("options", "named"),
    [("--flights 0", "'0' is not a number of flights"), ("--no-spark --kill nope", "there are ewr-broker")],
)
def test_the_demo_refuses_wrong_options_at_once(options: str, named: str, tmp_path: Path):
    done = isthmus("demo", "--data", "d", *options.split(), folder=tmp_path)
    assert done.returncode != 0 and named in done.stderr
    assert not (tmp_path / "d/logs").exists()


def test_the_demo_does_not_mix_with_what_an_earlier_run_left(tmp_path: Path):
    (tmp_path / "d/data").mkdir(parents=True)
    text = error(isthmus("demo", "--data", "d", "--no-spark", folder=tmp_path))
    assert text == "d holds the data of an earlier run: remove it (rm -r d), or choose another by --data"
