"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664).

All of it is the transaction coordinator's (`coordinators/transactions/listing.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.list_transactions import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.transactions.list_transactions(request, context.version)
