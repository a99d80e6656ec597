"""FindCoordinator (key 10): which broker coordinates a group, or a transactional id.

v1: the kind of coordinator. v4: several keys.
All of it is the coordinators' (`coordinators/find.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.find_coordinator import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.groups.finder.find_coordinator(request, context.version, context.listener)
