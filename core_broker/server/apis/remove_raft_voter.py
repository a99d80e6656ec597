"""RemoveRaftVoter (key 81): the leader of the metadata quorum takes a voter out of it (KIP-853)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.remove_raft_voter import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
