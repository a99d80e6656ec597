"""FetchSnapshot (key 59): a member of the metadata quorum that is far behind copies a snapshot (KIP-630)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.fetch_snapshot import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
