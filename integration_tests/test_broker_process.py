"""A broker as a process: how it gets ready and ends, and that what keeps it from starting is one clear line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration_tests.brokers import BrokerFailed, BrokerProcess
from integration_tests.conftest import BrokerMaker
from integration_tests.differential.batches import batch
from integration_tests.differential.peer import Case, Peer
from isthmus.protocol.messages import fetch, produce


def produced(case: Case, topic_id: bytes) -> None:
    data = produce.PartitionProduceData(index=0, records=batch())
    topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[data])
    answer = case.prepare(produce.Request(acks=-1, timeout_ms=5_000, topic_data=[topic]))
    assert answer.responses[0].partition_responses[0].error_code == 0


def records(case: Case, topic_id: bytes) -> bytes:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(topic_id=topic_id, partitions=[wanted])
    answer = case.prepare(fetch.Request(max_wait_ms=100, max_bytes=1 << 20, topics=[topic]))
    return bytes(answer.responses[0].partitions[0].records)


def test_what_was_acknowledged_is_there_after_kill_9_and_after_a_clean_stop(make_broker: BrokerMaker) -> None:
    broker = make_broker()
    address = broker.address
    case = Case(Peer("isthmus", address), 0, "kept")
    topic_id = case.topic()
    produced(case, topic_id)
    before = records(case, topic_id)
    assert before.endswith(batch()[61:])
    case.peer.close()

    broker.kill()
    assert not broker.alive()
    assert broker.start().address == address
    case = Case(Peer("isthmus", address), 0, "kept")
    assert records(case, topic_id) == before
    case.peer.close()

    assert broker.stop() == 0
    broker.start()
    case = Case(Peer("isthmus", address), 0, "kept")
    assert records(case, topic_id) == before
    case.peer.close()


def refused(broker: BrokerProcess, wrapper: Sequence[str] = ()) -> tuple[int, str]:
    """Exit code and the one line of a broker that must not start."""
    done = subprocess.run([*wrapper, *broker.command()], capture_output=True, text=True, timeout=20)
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.stdout == ""
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = BrokerProcess(tmp_path / "b")
        broker.address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, line = refused(broker)
    assert code == 1
    assert broker.address in line


def test_a_data_directory_that_another_broker_holds(make_broker: BrokerMaker) -> None:
    first = make_broker()
    second = BrokerProcess(first.folder)
    code, line = refused(second)
    assert code == 1
    assert str(first.folder / "data") in line
    assert first.alive()


READ_ONLY = 'mount -t tmpfs -o ro none "$0" && exec "$@"'


def test_a_read_only_data_directory(tmp_path: Path) -> None:
    """On a file system mounted read-only, in a mount namespace of its own: permissions would not stop root."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")
    broker = BrokerProcess(tmp_path / "b")
    data = tmp_path / "b/data"
    data.mkdir()
    code, line = refused(broker, [*namespace, "sh", "-c", READ_ONLY, str(data)])
    assert code == 1
    assert str(data) in line


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "b")
    (tmp_path / "b/data").touch()
    code, line = refused(broker)
    assert code == 1
    assert str(tmp_path / "b/data") in line


def test_a_data_directory_without_its_metadata_log_is_left_as_it_is(make_broker: BrokerMaker) -> None:
    """All topics would be unknown, and their partitions set aside."""
    broker = make_broker()
    case = Case(Peer("isthmus", broker.address), 0, "kept")
    topic_id = case.topic()
    produced(case, topic_id)
    before = records(case, topic_id)
    case.peer.close()
    assert broker.stop() == 0
    data = broker.folder / "data"
    (data / "__cluster_metadata-0").rename(broker.folder / "copy")
    code, line = refused(broker)
    assert code == 1
    assert f"{data}/__cluster_metadata-0 has no records" in line and "restore it" in line
    assert not list(data.glob("*-stray"))

    (data / "__cluster_metadata-0").rename(broker.folder / "made anew")
    (broker.folder / "copy").rename(data / "__cluster_metadata-0")
    broker.start()
    case = Case(Peer("isthmus", broker.address), 0, "kept")
    assert records(case, topic_id) == before
    case.peer.close()


@pytest.mark.parametrize(
    ("name", "value"), [("no.such.option", "1"), ("num.partitions", "many"), ("num.partitions", "0")]
)
def test_a_wrong_option(name: str, value: str, tmp_path: Path) -> None:
    code, line = refused(BrokerProcess(tmp_path / "b", {name: value}))
    assert code == 2
    assert name in line


def test_a_wrong_address(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "b")
    broker.address = "nowhere"
    code, line = refused(broker)
    assert code != 0
    assert "nowhere" in line


def test_the_helper_tells_a_broker_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match=r"no\.such\.option"):
        BrokerProcess(tmp_path / "b", {"no.such.option": 1}).start()


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from integration_tests.brokers import BrokerProcess\n"
        f"print(BrokerProcess(Path({str(tmp_path)!r})).start().pid, flush=True); time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 5
    while running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Not gone, and not waiting for its new parent to notice its end."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
