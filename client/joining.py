"""Makes the membership that a consumer's options ask for."""

from __future__ import annotations

from collections.abc import Sequence

from .assignors import Assignor
from .classic_membership import ClassicMembership
from .cluster import Client
from .consumer_membership import ConsumerMembership
from .errors import ClientError
from .membership import Membership, Polls

CLASSIC, CONSUMER = "classic", "consumer"
SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS = 10_000, 1_000  # of classic members
ASSIGNORS = ("range", "cooperative-sticky", "roundrobin")  # Kafka's default, and aiokafka's


def new_membership(
    client: Client,
    group_id: str,
    polls: Polls,
    *,
    group_protocol: str,
    group_instance_id: str | None,
    session_timeout_ms: int | None,
    rebalance_timeout_ms: int,
    heartbeat_interval_ms: int | None,
    assignors: Sequence[str | Assignor] | None,
    server_assignor: str | None,
    rack: str,
) -> Membership:
    """Raises ClientError for an option that the protocol does not have."""
    if group_protocol == CLASSIC:
        if server_assignor is not None:
            raise ClientError(f"server_assignor is for group_protocol='{CONSUMER}': choose by assignors")
        return ClassicMembership(
            client,
            group_id,
            group_instance_id,
            polls,
            session_timeout_ms=session_timeout_ms or SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=rebalance_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms or HEARTBEAT_INTERVAL_MS,
            assignors=ASSIGNORS if assignors is None else assignors,
            rack=rack,
        )
    if group_protocol != CONSUMER:
        raise ClientError(f"group_protocol is '{group_protocol}', but must be {CLASSIC} or {CONSUMER}")
    for name, value in (
        ("session_timeout_ms", session_timeout_ms),
        ("heartbeat_interval_ms", heartbeat_interval_ms),
        ("assignors", assignors),
    ):
        if value is not None:
            raise ClientError(f"{name} is for group_protocol='{CLASSIC}': in the other one the cluster decides")
    return ConsumerMembership(
        client,
        group_id,
        group_instance_id,
        polls,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=server_assignor,
        rack=rack,
    )
