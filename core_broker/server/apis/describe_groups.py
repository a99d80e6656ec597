"""DescribeGroups (key 15): state and members of groups.

v3: operations allowed. v6: error messages.
All of it is the group coordinator's (`coordinators/groups.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.describe_groups import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.describe_groups(request, context.version)
