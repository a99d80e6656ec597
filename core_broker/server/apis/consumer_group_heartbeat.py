"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, stays, or leaves (KIP-848).

v1: subscription by a regular expression; the member chooses its id.
All of it is the group coordinator's (`coordinators/consumer_groups/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.consumer_group_heartbeat import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.consumer_group_requests.heartbeat(
        request, context.version, context.client_id, context.client_host
    )
