"""Duties of the controller that time brings: preferred replicas lead again, and partitions without a leader get one
where their topic allows a leader that was not in sync.

As in Kafka's controller, leader.imbalance.per.broker.percentage is not asked for: every partition is looked after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....protocol.errors import KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from ..partition_index import Key
from .common import Decision, Item, View
from .leadership import TopicRules, allows_unclean, may_lead
from .partition_change import ElectionPolicy, Target, changed

MAX_ELECTIONS = 1_000  # in one decision, as in Kafka; the rest follows in the next


@dataclass(slots=True)
class Balanced(Item):
    """is_rest: whether there may be more to do; then it is to be done again at once."""

    is_rest: bool = False


@dataclass(slots=True, frozen=True)
class BalanceLeaders:
    """Preferred replicas that can lead do so. Result: a Balanced."""

    def decide(self, view: View) -> Decision:
        return _elect(view, view.image.index.imbalanced, ElectionPolicy.PREFERRED)

    def fail(self, error: KafkaError) -> Balanced:
        return Balanced(error.code, error.message)


@dataclass(slots=True, frozen=True)
class ElectUncleanLeaders:
    """Partitions without a leader, of topics with unclean.leader.election.enable. Result: a Balanced."""

    def decide(self, view: View) -> Decision:
        image = view.image
        keys = [key for key in image.index.leaderless if allows_unclean(view, image.partition_by_key(key)[0])]
        return _elect(view, keys, ElectionPolicy.UNCLEAN)

    def fail(self, error: KafkaError) -> Balanced:
        return Balanced(error.code, error.message)


def _elect(view: View, keys: Iterable[Key], policy: ElectionPolicy) -> Decision:
    rules = TopicRules(view, may_lead(view.image), policy)
    records: list[PartitionChangeRecord] = []
    for key in keys:
        topic, partition = view.image.partition_by_key(key)
        record = changed(topic.id, key[1], partition, Target(), rules.of(topic))
        if record is not None:
            records.append(record)
            if len(records) == MAX_ELECTIONS:
                break
    return Decision(Balanced(is_rest=len(records) == MAX_ELECTIONS), records)
