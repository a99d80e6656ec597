"""OffsetFetch (key 9): tells the offsets a group has stored.

v8: several groups. v10: topics by id.
All of it is the group coordinator's (`coordinators/offset_requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.offset_fetch import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.offset_requests.offset_fetch(request, context.version)
