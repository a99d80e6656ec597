"""TxnOffsetCommit (key 28): stores offsets of a group that count once a transaction commits.

v3: with the member, which is fenced. v5: the group's partition is added to the transaction. v6: topics by id.
All of it is the group coordinator's (`coordinators/txn_offset_requests.py`), which asks the transaction's.
"""

from __future__ import annotations

from typing import Any

from ....protocol.messages.txn_offset_commit import Request
from .._context import Context


def handle(request: Request, context: Context) -> Any:
    services = context.services
    return services.groups.txn_offsets.txn_offset_commit(request, context.version, services.verification)
