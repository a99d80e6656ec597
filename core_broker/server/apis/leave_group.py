"""LeaveGroup (key 13): members leave a group.

v3: several members.
All of it is the group coordinator's (`coordinators/member_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.leave_group import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.member_requests.leave_group(request, context.version)
