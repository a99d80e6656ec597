"""UpdateRaftVoter (key 82): a voter tells the leader of the metadata quorum where it is reached (KIP-853)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.update_raft_voter import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
