"""Names of topics that mean something to a broker; which names a topic may have is in the protocol room."""

from __future__ import annotations

CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def may_collide(name: str) -> bool:
    """Metric names cannot tell "." from "_", so two topics may not differ by that alone."""
    return "." in name or "_" in name
