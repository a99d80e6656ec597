"""The image, run as docs/how-to/containers.md runs it: who it is, what it may write, when it is healthy, its end."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from integration_tests.containers.conftest import ContainerMaker
from integration_tests.containers.containers import INSIDE, BrokerContainer
from isthmus.deploy import engine
from isthmus.deploy.engine import EngineError, EngineVersion, docker
from isthmus.deploy.image import build

UID = 10001
RECORDS = [f"record {i}" for i in range(1_000)]
STOP_S = 20
STARTS = 5
# What Python in the container prints: the users of all processes; which of some packages there are.
ALL_UIDS = """
from pathlib import Path
print(*{status.read_text().split("Uid:")[1].split()[0] for status in Path("/proc").glob("[0-9]*/status")})
"""
WHICH = """
from importlib.util import find_spec
print(*(name for name in ("pip", "Cython", "pyspark", "pyarrow", "uvloop") if find_spec(name)))
"""


def refusal(*arguments: str) -> str:
    with pytest.raises(EngineError) as caught:
        docker(*arguments)
    return str(caught.value)


def kcat(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(("kcat", *arguments), input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produced_by_kcat(broker: BrokerContainer, topic: str) -> None:
    kcat("-P", "-b", broker.bootstrap, "-t", topic, "-p", "0", "-z", "lz4", stdin="\n".join(RECORDS))


def produced_by_librdkafka(broker: BrokerContainer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for each in RECORDS:
        producer.produce(topic, each, partition=0)
    assert producer.flush(60) == 0


def consumed_by_kcat(broker: BrokerContainer, topic: str) -> list[str]:
    return kcat("-C", "-b", broker.bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines()


def consumed_by_librdkafka(broker: BrokerContainer, topic: str) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return found


# --- Who it is, and what it may do ----------------------------------------------------------------------------------


def test_everything_runs_as_a_user_that_is_not_root(broker_container: BrokerContainer) -> None:
    assert broker_container.inspect()["Config"]["User"] == f"{UID}:{UID}"
    assert broker_container.execute("python", "-c", ALL_UIDS).split() == [str(UID)]


@pytest.mark.parametrize("path", ["/opt/isthmus/x", "/etc/x", "/usr/x", "/var/x", "/x"])
def test_the_root_file_system_cannot_be_written(path: str, broker_container: BrokerContainer) -> None:
    as_root = ("exec", "--user", "0", broker_container.name, "touch", path)
    assert "Read-only file system" in refusal(*as_root)


@pytest.mark.parametrize("path", ["/data/x", "/tmp/x"])
def test_control_data_and_temporary_files_can_be_written(path: str, broker_container: BrokerContainer) -> None:
    broker_container.execute("touch", path)
    broker_container.execute("rm", path)


def test_without_a_volume_a_read_only_broker_says_what_it_cannot_write(isthmus_image: str) -> None:
    done = subprocess.run(
        ("docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", isthmus_image), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "/data" in done.stderr and "Read-only file system" in done.stderr and "Traceback" not in done.stderr


def test_the_image_holds_the_compiled_loops_and_neither_compiler_nor_spark(isthmus_image: str) -> None:
    assert "(records: compiled)" in docker("run", "--rm", isthmus_image, "--version")
    for command in ("gcc", "cc", "pip", "cython", "java"):
        assert refusal("run", "--rm", "--entrypoint", command, isthmus_image, "--version")
    assert docker("run", "--rm", "--entrypoint", "python", isthmus_image, "-c", WHICH).split() == ["uvloop"]


@pytest.mark.parametrize(
    "words", [("broker", "--help"), ("mirror", "run", "--help"), ("worker", "--help"), ("topic", "--help")]
)
def test_one_image_runs_every_part(words: tuple[str, ...], isthmus_image: str) -> None:
    assert "usage" in docker("run", "--rm", isthmus_image, *words, "--help").lower()


def test_an_image_of_other_source_is_known_as_such(isthmus_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = docker("image", "inspect", "--format", '{{index .Config.Labels "isthmus.source"}}', isthmus_image).strip()
    monkeypatch.setattr(build, "copy_source", lambda folder: digest)
    assert len(digest) == 64 and build.is_current(isthmus_image)
    assert not build.is_current("isthmus:none")
    monkeypatch.setattr(build, "copy_source", lambda folder: digest[::-1])
    assert not build.is_current(isthmus_image)


# --- What it does ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [produced_by_kcat, produced_by_librdkafka], ids=["kcat", "librdkafka"])
def test_clients_outside_produce_and_consume_through_a_published_port(
    producer: Callable[[BrokerContainer, str], None], broker_container: BrokerContainer
) -> None:
    topic = f"from-{producer.__name__}"
    producer(broker_container, topic)
    assert consumed_by_kcat(broker_container, topic) == RECORDS
    assert consumed_by_librdkafka(broker_container, topic) == RECORDS


def test_the_console_in_the_container_reaches_its_broker(broker_container: BrokerContainer) -> None:
    commands = f"export ISTHMUS_BOOTSTRAP={INSIDE}; echo hello | isthmus produce greetings >/tmp/said"
    assert broker_container.execute("sh", "-c", f"{commands} && isthmus consume greetings --exit") == "hello\n"


def test_health_follows_the_broker(make_container: ContainerMaker) -> None:
    options = ("--health-interval=500ms", "--health-retries=2", "--health-timeout=20s", "--health-start-period=1s")
    broker = make_container(options=options)
    broker.until_health("healthy")
    broker.signal("STOP")  # the broker hangs: the process and its listener are there all the same
    broker.until_health("unhealthy")
    assert "did not answer" in broker.inspect()["State"]["Health"]["Log"][-1]["Output"]
    broker.signal("CONT")
    broker.until_health("healthy")


def test_the_images_own_health_check_is_the_brokers_readiness(isthmus_image: str) -> None:
    config = json.loads(docker("image", "inspect", isthmus_image))[0]["Config"]
    assert config["Healthcheck"]["Test"] == ["CMD", "python", "-m", "isthmus.core_broker.health"]


def test_a_stop_is_graceful_and_what_was_acknowledged_stays(make_container: ContainerMaker) -> None:
    broker = make_container()
    broker.until_ready()
    produced_by_librdkafka(broker, "kept")
    docker("stop", "--time", str(STOP_S), broker.name)
    assert broker.inspect()["State"]["ExitCode"] == 0
    assert "has stopped" in broker.log()
    docker("rm", broker.name)
    broker.run()  # a new container on the same volume and port
    broker.until_ready()
    assert consumed_by_librdkafka(broker, "kept") == RECORDS


def test_control_a_kill_is_not_taken_for_a_graceful_stop(make_container: ContainerMaker) -> None:
    broker = make_container()
    broker.until_ready()
    produced_by_librdkafka(broker, "kept")
    broker.signal("KILL")
    docker("wait", broker.name)
    assert broker.inspect()["State"]["ExitCode"] == 137
    assert "has stopped" not in broker.log()
    docker("start", broker.name)
    broker.until_ready()
    assert consumed_by_librdkafka(broker, "kept") == RECORDS


# --- What is refused ------------------------------------------------------------------------------------------------


def test_a_taken_port_is_named(broker_container: BrokerContainer, isthmus_image: str) -> None:
    with pytest.raises(EngineError, match=f"port {broker_container.port} of 127.0.0.1 is taken"):
        with BrokerContainer(isthmus_image, port=broker_container.port):
            pass


def test_a_missing_image_says_how_to_build_it(docker_engine: EngineVersion) -> None:
    assert "there is no image isthmus:none: build it with `isthmus image build`" in refusal("run", "isthmus:none")


def test_a_user_without_rights_is_told_how_to_get_them(docker_engine: EngineVersion) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "docker", "ps")
    if subprocess.run(("id", "--user"), capture_output=True, text=True).stdout.strip() != "0":
        pytest.skip("only root can run a command as another user")
    with pytest.raises(EngineError, match=r"no rights to Docker's engine .* usermod -aG docker"):
        engine.run(nobody)


# --- Figures --------------------------------------------------------------------------------------------------------


def test_size_and_start_time_are_measured(isthmus_image: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the figures that docs/how-to/containers.md states; judges none, for that is a benchmark's."""
    size_bytes = int(docker("image", "inspect", "--format", "{{.Size}}", isthmus_image))
    starts_s, cpu_s = [], []
    for _ in range(STARTS):
        with BrokerContainer(isthmus_image) as broker:
            starts_s.append(broker.until_ready())
            cpu_s.append(broker.cpu_s())
    with capsys.disabled():
        print(
            f"\n{isthmus_image}: {size_bytes / 1e6:.0f} MB; from the start of its container to ready "
            f"{statistics.median(starts_s):.2f} s (median of {STARTS}, {min(starts_s):.2f} to {max(starts_s):.2f}), "
            f"{statistics.median(cpu_s):.2f} s of them at work"
        )
    assert min(starts_s) > 0 and min(cpu_s) > 0
