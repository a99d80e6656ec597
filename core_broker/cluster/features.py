"""The features of a cluster and their levels (KIP-584), as Kafka 4.4 has them.

A member names the levels at which it can work; the cluster has one finalized level of each, in the metadata. A member
that does not know a level is not let in, and a level that a member does not know cannot be finalized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol.messages import metadata_records as r
from .raft.voters import KRAFT_VERSIONS

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"  # 1: groups of KIP-848
KRAFT_VERSION = "kraft.version"  # its level is in the quorum's control records, not in the metadata


@dataclass(slots=True, frozen=True)
class Feature:
    """first: by level from 0 on, the first metadata.version at which a new cluster has that level.

    needs: the lowest metadata.version at which a level above 0 works at all.
    """

    first: tuple[int, ...]
    needs: int = 7

    @property
    def latest(self) -> int:
        return len(self.first) - 1

    def of_new_cluster(self, metadata_version: int) -> int:
        """The level that a new cluster at a metadata.version has."""
        return max(level for level, first in enumerate(self.first) if first <= metadata_version)


OLDEST, LATEST = 7, 33  # of metadata.version: Kafka 3.3-IV3 to 4.4-IV2
DIRECTORIES_SINCE = 17  # the metadata.version from which on brokers name their directories (KIP-858)
CHANGED_RECORDS = (7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)  # versions of it that brought other records

FEATURES: Mapping[str, Feature] = {
    KRAFT_VERSION: Feature((7, 21)),
    TRANSACTION_VERSION: Feature((7, 24, 24)),
    GROUP_VERSION: Feature((7, 22)),
    ELR_VERSION: Feature((7, 26), needs=23),
    "share.version": Feature((7, 28, 31)),
    "streams.version": Feature((7, 29)),
}

NONE = (0, 0)  # of a feature that does not work here

# The lowest and the highest level of each that a member of this software names: what works here.
SUPPORTED: Mapping[str, tuple[int, int]] = {
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    KRAFT_VERSION: KRAFT_VERSIONS,
    METADATA_VERSION: (OLDEST, LATEST),
    TRANSACTION_VERSION: (0, 2),
}

# Only brokers of this software name it when they register. They find a new controller at once, and read our records.
OUR_VERSION = "isthmus.version"
REGISTERED: Mapping[str, tuple[int, int]] = {**SUPPORTED, OUR_VERSION: NONE}


# By type of record: metadata.version from which on each version of it is written, as by MetadataVersion of Kafka 4.4.
# What is not here has one version. Levels before 17 (3.7-IV2) count as that: no older software of Kafka can be a member
# of one quorum with ours.
CORDONED = 30  # from which on records have the directories that get no new partitions
RECORD_VERSIONS: Mapping[type, tuple[tuple[int, int], ...]] = {
    r.RegisterBrokerRecord: ((0, 3), (CORDONED, 4)),
    r.BrokerRegistrationChangeRecord: ((0, 2), (CORDONED, 3)),
    r.PartitionRecord: ((0, 1), (23, 2)),
    r.PartitionChangeRecord: ((0, 1), (23, 2)),
}


def encoded_at(record: Any, metadata_version: int) -> bytes:
    """The value of a metadata record in the version that members at a metadata.version read. Raises EncodeError if that
    cannot hold what is in the record."""
    version = None
    for since, number in RECORD_VERSIONS.get(type(record), ()):
        if since <= metadata_version:
            version = number
    return r.encode(record, version)


def loses_records(now: int, wanted: int) -> bool:
    """Whether a lower metadata.version lacks kinds of records that the present one has."""
    return any(wanted < version <= now for version in CHANGED_RECORDS)


def of_new_cluster(metadata_version: int) -> dict[str, int]:
    """The levels that a new cluster finalizes: Kafka's, as far as they work here."""
    levels = {
        name: min(feature.of_new_cluster(metadata_version), SUPPORTED.get(name, NONE)[1])
        for name, feature in FEATURES.items()
    }
    del levels[KRAFT_VERSION]
    return {METADATA_VERSION: metadata_version} | {name: level for name, level in levels.items() if level}
