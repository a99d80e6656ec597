"""A broker that was paused, as a frozen machine's is: whoever sent heartbeats meanwhile is no dead member."""

from __future__ import annotations

import signal
import time

from integration_tests.conftest import BrokerMaker
from integration_tests.differential.wire import Connection
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import find_coordinator, heartbeat, join_group, sync_group

SESSION_MS = 1000
PAUSE_S = 1.6  # longer than a session, and than a loop is late without a pause
MEMBER = {"group_id": "g", "generation_id": 1}
LIMITS = {"group.min.session.timeout.ms": 100, "group.initial.rebalance.delay.ms": 0}


def test_heartbeats_of_a_pause_count_once_it_is_over(make_broker: BrokerMaker) -> None:
    """All members were expelled, since the loop looked at what was due before it read what had come."""
    broker = make_broker(LIMITS)
    alive, silent = Connection(broker.address), Connection(broker.address)
    ids = [join(alive, "alive"), join(silent, "silent")]
    broker.signal(signal.SIGSTOP)
    began = time.monotonic()
    while time.monotonic() < began + PAUSE_S:
        alive.send(heartbeat.Request(**{**MEMBER, "group_id": "alive"}, member_id=ids[0]), 4)
        time.sleep(SESSION_MS / 4000)  # as a client's heartbeats come
    broker.signal(signal.SIGCONT)
    answers = [alive.receive().error_code for _ in range(len(alive._sent))]
    assert answers == [0] * len(answers) and len(answers) >= 4
    # The control: who has sent none is expelled.
    late = silent.ask(heartbeat.Request(**{**MEMBER, "group_id": "silent"}, member_id=ids[1]), 4).error_code
    deadline = time.monotonic() + 10
    while late != ErrorCode.UNKNOWN_MEMBER_ID:
        assert time.monotonic() < deadline
        time.sleep(SESSION_MS / 500)
        late = silent.ask(heartbeat.Request(**{**MEMBER, "group_id": "silent"}, member_id=ids[1]), 4).error_code


def join(connection: Connection, group: str) -> str:
    """The member id of the only member of a stable group."""
    while connection.ask(find_coordinator.Request(coordinator_keys=[group]), 4).coordinators[0].error_code:
        pass
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.Request(
        group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=5000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    while not request.member_id:  # the coordinator may be about to load the group's partition
        request.member_id = connection.ask(request, 5).member_id
    joined = connection.ask(request, 5)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    mine = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    asked = sync_group.Request(group_id=group, generation_id=1, member_id=joined.member_id, assignments=[mine])
    assert connection.ask(asked, 4).error_code == 0
    return joined.member_id
