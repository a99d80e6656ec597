"""Heartbeat (key 12): keeps a member in its group.

v3: static members.
All of it is the group coordinator's (`coordinators/member_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.heartbeat import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.member_requests.heartbeat(request, context.version)
