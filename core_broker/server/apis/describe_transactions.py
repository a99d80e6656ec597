"""DescribeTransactions (key 65): the state of transactions, by id (KIP-664).

All of it is the transaction coordinator's (`coordinators/transactions/listing.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.describe_transactions import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.transactions.describe_transactions(request, context.version)
