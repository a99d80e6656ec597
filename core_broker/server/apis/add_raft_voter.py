"""AddRaftVoter (key 80): the leader of the metadata quorum makes a controller that follows it a voter (KIP-853)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.add_raft_voter import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
