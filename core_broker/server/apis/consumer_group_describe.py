"""ConsumerGroupDescribe (key 69): consumer groups with their members (KIP-848).

v1: the kind of member.
All of it is the group coordinator's (`coordinators/consumer_groups/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.consumer_group_describe import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.consumer_group_requests.describe(request, context.version)
