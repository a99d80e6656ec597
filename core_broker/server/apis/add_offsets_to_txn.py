"""AddOffsetsToTxn (key 25): a transaction is to commit a group's offsets.

All of it is the transaction coordinator's (`coordinators/transactions/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.add_offsets_to_txn import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.transactions.requests.add_offsets(request, context.version)
