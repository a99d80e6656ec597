"""Hypothesis over frames: whatever comes, the broker answers or closes, says no traceback, keeps what it has.

Every example also asks a good client, whose produce must be acked. Ten seconds here, five minutes by `make soak`.
"""

from __future__ import annotations

import errno
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.clients.records import create_topics
from integration_tests.waiting import until
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import APIS, fetch, metadata
from isthmus.protocol.records import iter_records

from .requests import TOPIC, TOPIC_ID, VERSIONS, frames
from .sockets import MIB, Good, connect, frame_of, produce_frame, rss

SECONDS, SOAK_SECONDS = 10.0, 300.0
AGAIN_S = 10.0  # for a heartbeat, and a new registration
LEAST = 100  # frames, however slow the machine is
EXAMPLES = 300  # a round; rounds go on until the time is over
CLOSE_TIMEOUT_S = 20.0
SHRINK_S = 300.0
GROWTH_BYTES = 64 * MIB
ACKED_BEFORE = 50
RENEW_EVERY = 20
CLOSED = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
GOOD = "good"
SETTINGS = {
    "connections.max.idle.ms": 2_000,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
}


@pytest.fixture
def broker(tmp_path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path, SETTINGS) as made:
        create_topics(made.bootstrap, [GOOD])
        yield made


class Fuzz:
    """One broker, a good client and what was sent so far."""

    def __init__(self, broker: BrokerProcess, good: Good):
        self.broker, self.good = broker, good
        self.close_timeout_s = CLOSE_TIMEOUT_S
        self.sent: Counter[tuple[int, int]] = Counter()
        self.most_rss = 0
        self.acked = 0
        self.topic_id = b""
        self._renew()
        self._log = open(broker.folder / "broker.log", "rb")  # noqa: SIM115 - closed by `close`

    def _renew(self) -> None:
        """Frames may delete the topic that they are about."""
        found = topic_id_of(self.broker.port, TOPIC)
        if not any(found):
            create_topics(self.broker.bootstrap, [TOPIC])
            found = topic_id_of(self.broker.port, TOPIC)
        self.topic_id = found

    def send(self, frame: bytes) -> None:
        if self.acked % RENEW_EVERY == 0:
            self._renew()
        with connect(self.broker.port) as sock:
            sock.settimeout(self.close_timeout_s)
            try:
                sock.sendall(frame.replace(TOPIC_ID, self.topic_id))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass
            except TimeoutError:
                raise AssertionError(f"neither answered nor closed within {self.close_timeout_s} s") from None
            except OSError as error:  # the broker closed before all was sent
                assert error.errno in CLOSED, error
        self.check()

    def check(self) -> None:
        assert self.broker.alive(), self.broker.log[-3000:]
        until(self._is_acked, "a frame may unregister the broker, which registers again", AGAIN_S)
        self.acked += 1
        said = self._log.read()
        assert b"Traceback" not in said, said.decode(errors="replace")
        self.most_rss = max(self.most_rss, rss(self.broker))

    def _is_acked(self) -> bool:
        answer = APIS[0].decode_response(self.good.ask(), 5, 9)
        code = answer.responses[0].partition_responses[0].error_code
        assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), answer
        return not code

    def close(self) -> None:
        self._log.close()


@st.composite
def examples(draw: st.DrawFn) -> tuple[tuple[int, int], bytes]:
    key, version = draw(st.sampled_from(VERSIONS))
    return (key, version), draw(frames(key, version))


def fuzz(fuzzed: Fuzz, seconds: float) -> None:
    deadline = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() > deadline and fuzzed.sent.total() >= LEAST

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=False,
        phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(examples())
    def one_round(example: tuple[tuple[int, int], bytes]) -> None:
        nonlocal deadline
        which, frame = example
        if is_over():
            return
        fuzzed.sent[which] += 1
        try:
            fuzzed.send(frame)
        except BaseException:
            deadline += SHRINK_S / EXAMPLES  # what was found is worth the time to make it small
            raise

    while not is_over():
        one_round()


def topic_id_of(port: int, topic: str) -> bytes:
    request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=topic)])
    with Good(port, frame_of(request, 12)) as asking:
        found: bytes = APIS[3].decode_response(asking.ask(), 5, 12).topics[0].topic_id
    return found


def values_of_good_topic(port: int) -> list[bytes | None]:
    asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 * MIB)
    topic = fetch.FetchTopic(topic=GOOD, partitions=[asked])
    request = fetch.Request(max_wait_ms=0, min_bytes=0, max_bytes=64 * MIB, topics=[topic])
    with Good(port, frame_of(request, 12)) as reader:
        answer = APIS[1].decode_response(reader.ask(), 5, 12)
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return [record.value for record in iter_records(found.records)]


def assert_is_little(grown: int) -> None:
    assert grown < GROWTH_BYTES, f"the broker has {grown / MIB:.0f} MiB more than before"


def survives(broker: BrokerProcess, seconds: float) -> Fuzz:
    """Fuzz it, then kill it: what good clients were acked before and meanwhile must be there after the start."""
    before = [f"before-{n}" for n in range(ACKED_BEFORE)]
    with Good(broker.port, produce_frame(GOOD, b"meanwhile")) as good:
        fuzzed = Fuzz(broker, good)
        for value in before:
            with Good(broker.port, produce_frame(GOOD, value.encode())) as other:
                other.ask()
        fuzzed.check()
        quiet = rss(broker)
        fuzz(fuzzed, seconds)
        fuzzed.close()
    grown = fuzzed.most_rss - quiet
    print(
        f"{fuzzed.sent.total()} frames, {len(fuzzed.sent)} of {len(VERSIONS)} versions, memory +{grown / MIB:.1f} MiB"
    )
    assert_is_little(grown)
    broker.kill()
    broker.start()
    assert values_of_good_topic(broker.port) == [v.encode() for v in before] + [b"meanwhile"] * fuzzed.acked
    return fuzzed


def test_every_version_takes_a_request_that_is_whole_cut_short_or_too_long(broker: BrokerProcess):
    with Good(broker.port, produce_frame(GOOD, b"x")) as good:
        fuzzed = Fuzz(broker, good)
        for key, version in VERSIONS:
            whole = frame_of(APIS[key].request.struct(), version)[4:]
            for frame in (whole, whole[:-1], whole[:11], whole + b"\0\xff"):
                fuzzed.send(struct.pack(">i", len(frame)) + frame)
        fuzzed.close()


def test_frames_of_every_kind_never_break_the_broker(broker: BrokerProcess):
    assert survives(broker, SECONDS).sent.total() >= LEAST


@pytest.mark.soak
def test_frames_for_minutes(broker: BrokerProcess):
    assert len(survives(broker, SOAK_SECONDS).sent) > 0.9 * len(VERSIONS)


def test_control_a_traceback_in_the_log_is_seen(broker: BrokerProcess):
    with Good(broker.port, produce_frame(GOOD, b"x")) as good:
        fuzzed = Fuzz(broker, good)
        fuzzed.send(struct.pack(">i", -1))
        with open(broker.folder / "broker.log", "a") as log:
            log.write("Traceback (most recent call last):\n")
        with pytest.raises(AssertionError, match="Traceback"):
            fuzzed.send(struct.pack(">i", -1))
        fuzzed.close()


def test_control_memory_that_grows_is_seen(broker: BrokerProcess):
    """Frames that do not end are kept until the idle time, up to a bound of their own."""
    with Good(broker.port, produce_frame(GOOD, b"x")) as good, connect(broker.port) as one, connect(broker.port) as two:
        fuzzed = Fuzz(broker, good)
        quiet = rss(broker)
        for sock in (one, two):
            sock.sendall(struct.pack(">i", 50 * MIB) + bytes(45 * MIB))
        fuzzed.check()
        with pytest.raises(AssertionError, match="MiB more than before"):
            assert_is_little(fuzzed.most_rss - quiet)
        fuzzed.close()


def test_control_a_broker_that_hangs_is_seen(broker: BrokerProcess):
    with Good(broker.port, produce_frame(GOOD, b"x")) as good:
        fuzzed = Fuzz(broker, good)
        fuzzed.check()
        fuzzed.close_timeout_s = 1.0
        broker.signal(signal.SIGSTOP)
        try:
            with pytest.raises(AssertionError, match="neither answered nor closed"):
                fuzzed.send(frame_of(APIS[18].request.struct(), 0))
        finally:
            broker.signal(signal.SIGCONT)
        fuzzed.close()
