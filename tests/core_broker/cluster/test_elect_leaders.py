"""ElectLeaders: preferred and unclean elections, decided on the image alone."""

from copy import deepcopy

import pytest

from isthmus.core_broker.cluster.controller import AlterPartition, AlterReassignments, Election, ElectLeaders, WantedIsr
from isthmus.core_broker.cluster.controller.loop import is_unclean
from isthmus.core_broker.cluster.partition_image import NO_LEADER
from isthmus.protocol.errors import ErrorCode

from .support import Cluster

E = ErrorCode


class Elections(Cluster):
    """Three brokers and a topic t of two partitions on brokers 1, 2 and 3."""

    def __init__(self):
        super().__init__(brokers=3)
        self.assign("t", [1, 2, 3], [1, 2, 3])

    def elect(self, election, topic="t", index=0):
        (item,) = self.run(ElectLeaders(election, [(topic, [index])])).items
        return item.partitions[0].error_code


def test_the_preferred_replica_takes_over_when_it_is_in_sync():
    cluster = Elections()
    cluster.change(leader=2)
    assert cluster.elect(Election.PREFERRED) == E.NONE
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 2)
    assert cluster.elect(Election.PREFERRED) == E.ELECTION_NOT_NEEDED


@pytest.mark.parametrize("trouble", [{"isr": [2, 3]}, None])
def test_a_preferred_replica_that_is_behind_or_gone_does_not(trouble):
    cluster = Elections()
    cluster.change(leader=2, **(trouble or {}))
    if trouble is None:
        cluster.fence(1)
    assert cluster.elect(Election.PREFERRED) == E.PREFERRED_LEADER_NOT_AVAILABLE
    assert cluster.partition().leader == 2


def test_an_unclean_election_prefers_who_is_in_sync_and_else_takes_any_that_lives():
    cluster = Elections()
    assert cluster.elect(Election.UNCLEAN) == E.ELECTION_NOT_NEEDED
    cluster.change(leader=NO_LEADER, isr=[2])
    assert cluster.elect(Election.UNCLEAN) == E.NONE
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    cluster.change(leader=NO_LEADER)
    cluster.fence(1, 2)
    assert cluster.elect(Election.UNCLEAN) == E.NONE
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    cluster.change(leader=NO_LEADER)
    cluster.fence(3)
    assert cluster.elect(Election.UNCLEAN) == E.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_of_all_partitions_only_those_are_told_that_changed_or_could_not():
    cluster = Elections()
    cluster.change(index=1, leader=2)
    (item,) = cluster.run(ElectLeaders(Election.PREFERRED, None)).items
    assert [(each.index, each.error_code) for each in item.partitions] == [(1, 0)]


def test_what_is_not_there_and_kinds_of_election_that_are_not():
    cluster = Elections()
    assert cluster.elect(Election.PREFERRED, topic="no") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.elect(Election.PREFERRED, index=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.run(ElectLeaders(5, [("t", [0])])).error.code == E.INVALID_REQUEST


def test_leader_that_lacks_records_is_told_from_one_that_a_move_has_brought():
    cluster = Elections()
    cluster.assign("moves", [1])
    cluster.run(AlterReassignments([("moves", [(0, [2])])]))
    before, now = deepcopy(cluster.image), cluster.partition("moves")
    epochs = [(each, cluster.image.brokers[each].epoch) for each in (1, 2)]
    wanted = WantedIsr(0, now.leader_epoch, now.partition_epoch, epochs)
    cluster.run(AlterPartition(*epochs[0], [(cluster.image.topics["moves"].id, [wanted])]))
    assert (cluster.partition("moves").leader, cluster.partition("moves").isr) == (2, (2,))
    assert [is_unclean(each, before) for each in cluster.last] == [False]

    cluster.change(leader=NO_LEADER, isr=[1])
    cluster.fence(1)
    before = deepcopy(cluster.image)
    assert cluster.elect(Election.UNCLEAN) == E.NONE
    assert [is_unclean(each, before) for each in cluster.last] == [True]
