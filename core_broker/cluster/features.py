"""The features that nodes of this version support, and the levels at which a new cluster begins (KIP-584).

A node whose range lacks a finalized level of its cluster is not registered. The numbers are those of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

SUPPORTED: Mapping[str, tuple[int, int]] = {  # lowest and highest level by name
    ELR_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (7, 33),
}
NEW_CLUSTER: Mapping[str, int] = {
    METADATA_VERSION: 25,  # the last of Kafka 4.0: any Kafka 4 can join, or take over
    ELR_VERSION: 1,
}
