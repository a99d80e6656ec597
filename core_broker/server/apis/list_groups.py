"""ListGroups (key 16): the groups this broker coordinates.

v4: filter by state. v5: by type.
All of it is the group coordinator's (`coordinators/groups.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.list_groups import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.list_groups(request, context.version)
