"""Vote (key 52): a member of the metadata quorum asks for this one's vote, or if it would have it (KIP-595, 996)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.vote import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
