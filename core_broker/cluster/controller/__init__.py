"""The controller of the cluster: one file for each decision; `loop.py` executes the decisions."""

from ....protocol.messages.create_partitions import CreatePartitionsTopic
from ....protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from .alter_configs import AlterConfigs
from .alter_partition import AlteredPartition, AlteredTopic, AlterPartition, WantedIsr
from .assign_directories import AssignDirectories, AssignedTopic
from .balance_leaders import Balanced, BalanceLeaders, ElectUncleanLeaders
from .broker_heartbeat import BrokerHeartbeat, HeartbeatResult
from .common import Command, Decision, Item, PartitionItem, Result, View
from .create_partitions import CreatePartitions, GrownTopic
from .create_topics import CreatedTopic, CreateTopics, new_topic
from .delete_topics import DeletedTopic, DeleteTopics
from .elect_leaders import Election, ElectLeaders, TopicElections
from .fence_broker import FenceBroker
from .incremental_alter_configs import IncrementalAlterConfigs, Operation
from .loop import Controller
from .mirror_links import NEXT_EPOCH, RegisteredLink, RegisterMirrorLink
from .producer_ids import AllocateProducerIds, ProducerIdBlock, cluster_ordinal
from .reassignments import AlterReassignments, ReassignedTopic
from .register_broker import RegisterBroker, RegisteredBroker
from .register_controller import RegisterController, UnregisterController
from .resources import AlteredResource
from .sessions import Sessions
from .unregister_broker import UnregisterBroker
from .update_features import Activate, UpdateFeatures, Upgrade
from .watch import Watch

__all__ = [
    "NEXT_EPOCH",
    "Activate",
    "AllocateProducerIds",
    "AlterConfigs",
    "AlterPartition",
    "AlterReassignments",
    "AlteredPartition",
    "AlteredResource",
    "AlteredTopic",
    "AssignDirectories",
    "AssignedTopic",
    "BalanceLeaders",
    "Balanced",
    "BrokerHeartbeat",
    "Command",
    "Controller",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatePartitions",
    "CreatePartitionsTopic",
    "CreateTopics",
    "CreatedTopic",
    "Decision",
    "DeleteTopics",
    "DeletedTopic",
    "ElectLeaders",
    "ElectUncleanLeaders",
    "Election",
    "FenceBroker",
    "GrownTopic",
    "HeartbeatResult",
    "IncrementalAlterConfigs",
    "Item",
    "Operation",
    "PartitionItem",
    "ProducerIdBlock",
    "ReassignedTopic",
    "RegisterBroker",
    "RegisterController",
    "RegisterMirrorLink",
    "RegisteredBroker",
    "RegisteredLink",
    "Result",
    "Sessions",
    "TopicElections",
    "UnregisterBroker",
    "UnregisterController",
    "UpdateFeatures",
    "Upgrade",
    "View",
    "WantedIsr",
    "Watch",
    "cluster_ordinal",
    "new_topic",
]
