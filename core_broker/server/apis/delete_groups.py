"""DeleteGroups (key 42): deletes groups without members.

v3: error messages.
All of it is the group coordinator's (`coordinators/groups.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.delete_groups import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.delete_groups(request, context.version)
