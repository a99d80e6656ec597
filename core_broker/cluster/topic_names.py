"""Topic names with a special meaning for a broker. `protocol/topic_names.py` says which names are valid."""

from __future__ import annotations

CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def may_collide(name: str) -> bool:
    """The name with "." as "_": metric names do not distinguish them, so two topics must differ in more."""
    return "." in name or "_" in name
