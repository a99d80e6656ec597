"""Which handler answers which request: the list of APIs that this node serves, and their versions, by the listener's
scope.

Every key has exactly the versions that stock Kafka 4.4.0 announces; `DIFFERENCES` is the whole list of exceptions.
A key is listed only when all its versions work. Nothing here does I/O.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...protocol.messages import APIS
from ._route import Route
from .latency import Latency

if TYPE_CHECKING:
    from .forwarding import Handler


class Scope(Enum):
    """Whom a listener is for."""

    BROKER = "clients and other brokers"
    CONTROLLER = "the metadata quorum, brokers that ask the active controller, and Admin of controllers (KIP-919)"


# key -> lowest and highest version served; the handler is apis/<name of the message's module>.py
SERVED: dict[int, tuple[int, int]] = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 5),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 6),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    37: (0, 3),
    42: (0, 3),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    80: (0, 1),
    81: (0, 0),
    94: (0, 0),
    30000: (0, 0),
}

# The same for listeners of controllers; a key has the same versions at both. Where it has another meaning there, its
# module has a `handle_controller`.
SERVED_BY_CONTROLLERS: dict[int, tuple[int, int]] = {
    **{key: SERVED[key] for key in (1, 18, 19, 20, 32, 33, 37, 43, 44, 45, 46, 55, 57, 60, 64, 80, 81, 94)},
    52: (0, 2),
    53: (0, 1),
    54: (0, 1),
    56: (2, 3),
    58: (0, 0),
    59: (0, 1),
    62: (0, 4),
    63: (0, 2),
    67: (0, 0),
    70: (0, 0),
    73: (0, 0),
    82: (0, 0),
    30001: (0, 0),
}

# Keys that the active controller decides: a broker that is not it forwards them (KIP-590). Of the second ones, it does
# what is its own by itself.
FORWARDED = (19, 20, 37, 43, 45, 46, 55, 57, 64, 80, 81, 94)
FORWARDED_IN_PART = (33, 44)

# What a client can notice, by key. The versions are Kafka's throughout.
DIFFERENCES: dict[int, str] = {
    0: "Produce checks batches, not their records: broken records under a right CRC are kept, and so is the largest "
    "timestamp that the header claims. A batch that claims LogAppendTime is always refused (INVALID_TIMESTAMP); Kafka "
    "refuses it only where the topic has that type. An unknown codec is UNSUPPORTED_COMPRESSION_TYPE, in Kafka a fault "
    "(UNKNOWN_SERVER_ERROR)",
    1: "Fetch answers go on past the end of a segment, up to the limits. Those of 64 KB and more (16 intervals of the "
    "index) end with a whole batch; Kafka's end with a part of the next one, which clients ask for again. An id of "
    "zeros is an unknown topic; Kafka's answer may be a fault (UNKNOWN_SERVER_ERROR). A leader that the controller may "
    "have fenced meanwhile is NOT_LEADER_OR_FOLLOWER to consumers beyond its end, or with records of a later leader, "
    "and a follower is OFFSET_NOT_AVAILABLE to them, else OFFSET_OUT_OF_RANGE. A last stable offset is not before the "
    "log's start; Kafka's may be, where the first records of a batch within an open transaction are deleted",
    2: "ListOffsets by a timestamp finds the first record that exists; Kafka's may be one that was deleted, or none. "
    "A partition that was offline when its topic was deleted is UNKNOWN_TOPIC_OR_PARTITION; Kafka still answers "
    "KAFKA_STORAGE_ERROR. A leader that the controller may have fenced meanwhile tells consumers the earliest offset "
    "alone, else NOT_LEADER_OR_FOLLOWER",
    3: "Metadata that creates a topic answers when the topic can be written to; Kafka has the client ask again. A null "
    "name without an id is INVALID_REQUEST, in Kafka a fault (UNKNOWN_SERVER_ERROR). "
    "A broker that died is among the brokers for 1.2 s more, while its partitions have their new leaders",
    8: "OffsetCommit of nothing that can be kept makes no group; in Kafka it makes one, in memory only",
    9: "OffsetFetch lists all offsets of a group once, even if the group is named twice: else a few bytes would ask "
    "for megabytes. A member's epoch without its id is UNKNOWN_MEMBER_ID in a consumer group, in Kafka a fault "
    "(UNKNOWN_SERVER_ERROR)",
    10: "FindCoordinator that creates the topic of groups or of transactions answers when the topic is there; Kafka "
    "has the client ask again (COORDINATOR_NOT_AVAILABLE)",
    11: "JoinGroup: a coordinator that the controller may have fenced meanwhile is NOT_COORDINATOR to members that it "
    "does not know. One that is sent again on another connection is answered REBALANCE_IN_PROGRESS; Kafka leaves "
    "it without an answer. A consumer group that turns classic with a static member always rebalances; in Kafka its "
    "leader does not know that it leads, if nothing else has changed",
    12: "Heartbeat: unknown members, see JoinGroup. Where only classic members are left in a consumer group (under a "
    "migration policy without downgrades), they are told to join again for what is free or new; in Kafka nobody reads "
    "that until one joins by itself",
    14: "SyncGroup: the same",
    15: "DescribeGroups lists a group once, even if it is named twice: else a few bytes would ask for megabytes",
    18: "ApiVersions lists the keys and the features that work here: of Kafka's, those of share groups and of streams "
    "groups are missing",
    19: "CreateTopics lists our options among a topic's. Brokers that name no rack, on machines with several of them, "
    "have their machine as a rack",
    22: "InitProducerId of a transactional id waits for a producer id; Kafka has the client ask again "
    "(COORDINATOR_LOAD_IN_PROGRESS). An epoch that no producer has is PRODUCER_FENCED, too, where the epochs are used "
    "up, in Kafka a fault (UNKNOWN_SERVER_ERROR)",
    23: "OffsetForLeaderEpoch: a leader that the controller may have fenced meanwhile does not tell of later epochs "
    "that there are none (NOT_LEADER_OR_FOLLOWER)",
    24: "AddPartitionsToTxn of brokers (versions 4 and 5) that names no transaction is answered; Kafka leaves it "
    "without an answer. One that it names twice is taken twice; Kafka takes the last. Under transaction.version 0 it "
    "is refused (UNSUPPORTED_VERSION) as in Kafka, and the transaction goes on; in Kafka it is stuck until its "
    "coordinator is another one (CONCURRENT_TRANSACTIONS)",
    25: "AddOffsetsToTxn makes the topic of groups if there is none",
    26: "EndTxn of version 5 under transaction.version 0: see AddPartitionsToTxn",
    27: "WriteTxnMarkers: a partition without a leader has its marker once it has one; Kafka's coordinator forgets it, "
    "and its readers of committed records wait for ever. A marker that is refused for one of a later coordinator is "
    "sent again, where Kafka's coordinator stops",
    28: "TxnOffsetCommit of nothing that can be kept makes no group: see OffsetCommit",
    32: "DescribeConfigs lists our options beside Kafka's, with our defaults; a resource named twice is listed once; "
    "client metrics (kind 16) have no options here (INVALID_REQUEST)",
    33: "AlterConfigs keeps the options of mirrors. It refuses a broker's options that cannot be honoured, and unknown "
    "names (INVALID_CONFIG), see configuration.md",
    35: "DescribeLogDirs lists the sizes of all other partitions where one is offline, see above",
    42: "DeleteGroups of a group that has committed nothing that can be kept is GROUP_ID_NOT_FOUND: see OffsetCommit",
    43: "ElectLeaders has nothing to do for a partition that is offline (ELECTION_NOT_NEEDED), see above",
    44: "IncrementalAlterConfigs refuses a broker's options that cannot be honoured, and unknown names, which Kafka "
    "keeps (INVALID_CONFIG), see configuration.md. Client metrics (kind 16) have no options (INVALID_REQUEST). "
    "An unknown operation is INVALID_REQUEST, too, in Kafka a fault where the option is a topic's or a group's "
    "(UNKNOWN_SERVER_ERROR)",
    45: "AlterPartitionReassignments takes an earlier move's place, so that a partition that is wanted on the brokers "
    "that it has stays on all of them; in Kafka those that the earlier move was to take away still go",
    55: "DescribeQuorum names the broker's listeners as the node's where it is alone and has none for controllers",
    57: "UpdateFeatures refuses kraft.version=1 where controller.quorum.voters configures the voters; Kafka's takes "
    "them into its log",
    60: "DescribeCluster of controllers lists the voters of the quorum; Kafka's lists those that have registered",
    63: "BrokerHeartbeat: a broker that was fenced stays so until it has applied the metadata that says so; in Kafka "
    "its registration is enough",
    65: "DescribeTransactions lists an id once, even if it is named twice: else a few bytes would ask for megabytes",
    68: "ConsumerGroupHeartbeat: where as many members ask for one assignor as for another, the group keeps to one of "
    "them; Kafka's takes the other with heartbeats that name one, and assigns anew each time. What a member had that "
    "changes to a pattern without topics goes to the others; in Kafka nobody reads it until the group changes again. "
    "A regular expression is refused if its program takes more than a MiB of memory, and for more than 4,096 "
    "repetitions. A classic group that turns into a consumer group is assigned anew if it has partitions without a "
    "member; in Kafka not where a static member does that without another subscription",
    69: "ConsumerGroupDescribe lists a group once, even if it is named twice: see DescribeGroups",
    75: "DescribeTopicPartitions: a partition that is offline keeps its leader epoch, and has no eligible leader. An "
    "empty name is INVALID_TOPIC_EXCEPTION, and the other names are answered beside it; in Kafka the whole request is "
    "a fault (UNKNOWN_SERVER_ERROR)",
    30000: "MirrorAppend is ours: a mirror appends whole batches at given offsets; stock Kafka does not list it",
    30001: "RaiseLeaderEpoch is ours: the leader of mirrored partitions asks the controller for the leader epochs of "
    "their source; stock Kafka does not list it, and cannot be the controller of a mirror's target",
}

PRODUCE_FIRST = 3  # Produce 0-2 is announced, as Kafka does, for old librdkafka only (KAFKA-18659), and refused


def served(scope: Scope) -> dict[int, tuple[int, int]]:
    """Key -> lowest and highest version."""
    return SERVED if scope is Scope.BROKER else SERVED_BY_CONTROLLERS


def handler_modules() -> list[str]:
    """The modules of all handlers, by their keys. Each is loaded by its first request, or earlier by `loading.py`."""
    from ...protocol.messages import MODULES

    modules = [f"{__package__}.apis.{MODULES[key]}" for key in {**SERVED, **SERVED_BY_CONTROLLERS}]
    return [*modules, f"{__package__}.forwarding"]


def handler(key: int, scope: Scope) -> Handler:
    """How a request of this key is handled at a listener of this scope."""
    module = _module(key)
    handle: Handler = module.handle
    return getattr(module, "handle_controller", handle) if scope is Scope.CONTROLLER else handle


@cache
def _module(key: int) -> Any:
    from ...protocol.messages import MODULES

    return import_module(f".apis.{MODULES[key]}", __package__)


class Routes(dict[int, Any]):
    """Routes by `key << 16 | version`; None for what is not served. Made by their first requests, for a quick start.

    latencies: by key, of all scopes together.
    """

    def __init__(self, scope: Scope = Scope.BROKER, latencies: dict[int, Latency] | None = None) -> None:
        super().__init__()
        self._scope = scope
        self._served = served(scope)
        self._latencies: dict[int, Latency] = {} if latencies is None else latencies

    def __missing__(self, number: int) -> Route | None:
        key, version = number >> 16, number & 0xFFFF
        first, last = self._served.get(key, (0, -1))
        if key == 0:
            first = PRODUCE_FIRST
        if not first <= version <= last:
            return None
        handle, short_way = handler(key, self._scope), None
        if self._scope is Scope.BROKER and hasattr(module := _module(key), "short_way"):
            short_way = module.short_way(version)
        latency = self._latencies.setdefault(key, Latency())
        route = self[number] = Route(APIS[key], version, handle, latency, short_way)
        if self._scope is Scope.BROKER and key in FORWARDED:
            from .forwarding import encoding, forwarding

            route.handle, route.encode = forwarding(route.api, handle), encoding(route.encode)
        return route
