"""SyncGroup (key 14): the leader gives, the members get their assignment.

v3: static members.
All of it is the group coordinator's (`coordinators/member_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.sync_group import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.member_requests.sync_group(request, context.version)
