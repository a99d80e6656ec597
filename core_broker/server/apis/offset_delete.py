"""OffsetDelete (key 47): deletes committed offsets of topics that a group's members do not read.

All of it is the group coordinator's (`coordinators/offset_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.offset_delete import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.offset_requests.offset_delete(request, context.version)
