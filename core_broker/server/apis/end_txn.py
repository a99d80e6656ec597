"""EndTxn (key 26): commits or aborts a transaction.

v5: the answer has the id and epoch of the next transaction (KIP-890).
All of it is the transaction coordinator's (`coordinators/transactions/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.end_txn import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.transactions.requests.end(request, context.version)
