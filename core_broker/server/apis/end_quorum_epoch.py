"""EndQuorumEpoch (key 54): a leader of the metadata quorum leads no more (KIP-595)."""

from __future__ import annotations

from typing import Any

from ....protocol.messages.end_quorum_epoch import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.quorum.handle(request)
