"""JoinGroup (key 11): enters a group, or begins its next generation.

v4: a member is told its id first (KIP-394). v5: static members.
All of it is the group coordinator's (`coordinators/member_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.join_group import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.member_requests.join_group(
        request, context.version, context.client_id, context.client_host
    )
