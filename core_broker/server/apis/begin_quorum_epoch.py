"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum says that it leads (KIP-595)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.begin_quorum_epoch import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
