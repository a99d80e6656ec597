"""OffsetForLeaderEpoch (23): ends of epochs. A new topic's partitions are in epoch 0; see test_restart.py for more."""

from __future__ import annotations

from isthmus.protocol.messages import offset_for_leader_epoch as m

from ..peer import Case, Scenarios
from ..requests import fill

SCENARIOS = Scenarios()


def request(topic: str, epoch: int, current: int = -1, index: int = 0, replica_id: int = -1) -> m.Request:
    row = m.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    return m.Request(replica_id=replica_id, topics=[m.OffsetForLeaderTopic(topic=topic, partitions=[row])])


@SCENARIOS.success(23)
def ends_of_epochs(case: Case) -> None:
    fill(case, case.topic(), 2)
    for epoch in (0, 1, 9, -1):  # the present one, some that are not known yet, none
        case.compare(request(case.name, epoch))
        case.compare(request(case.name, epoch, current=0))


@SCENARIOS.success(23, ends=True)
def ends_of_epochs_of_an_empty_log(case: Case) -> None:
    case.topic()
    for epoch in (0, 1, -1):
        case.compare(request(case.name, epoch))


@SCENARIOS.success(23, since=3, ends=True)
def ends_of_epochs_for_debuggers(case: Case) -> None:
    fill(case, case.topic())
    case.compare(request(case.name, 0, replica_id=-2))


@SCENARIOS.success(23, ends=True)
def no_topics_with_epochs(case: Case) -> None:
    case.compare(m.Request(topics=[]))


@SCENARIOS.error(23)
def epoch_of_an_unknown_topic_or_partition(case: Case) -> None:
    case.compare(request(case.name, 0))
    case.topic()
    case.compare(request(case.name, 0, index=7))
    case.compare(request("no/name", 0))


@SCENARIOS.error(23, ends=True)
def client_is_ahead_of_the_leader_epoch(case: Case) -> None:
    case.topic()
    case.compare(request(case.name, 0, current=1))
    case.compare(request(case.name, 0, current=9, index=7))


@SCENARIOS.error(23, ends=True)
def epochs_below_none(case: Case) -> None:
    fill(case, case.topic())
    for epoch in (-1, -2, -9):
        case.compare(request(case.name, epoch))
        case.compare(request(case.name, 0, current=epoch))
