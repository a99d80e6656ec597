"""AddPartitionsToTxn (key 24): a transaction is to write to partitions.

v4: of brokers, which may only ask (verify_only, KIP-890), for many transactions at once.
All of it is the transaction coordinator's (`coordinators/transactions/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.add_partitions_to_txn import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    return context.services.transactions.requests.add_partitions(request, context.version)
