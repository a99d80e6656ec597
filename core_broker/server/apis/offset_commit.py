"""OffsetCommit (key 8): stores offsets of a group.

v10: topics by id.
All of it is the group coordinator's (`coordinators/offset_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.offset_commit import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.offset_requests.offset_commit(request, context.version)
