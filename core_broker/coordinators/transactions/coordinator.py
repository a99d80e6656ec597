"""The transaction coordinator: requests in, answers or Pendings out.

A `TransactionCoordinator` holds its parts:

    host      host.py      the transactions and their shards, their timeouts and expiry; its markers end them
    requests  requests.py  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn

DescribeTransactions and ListTransactions are handled here, and the metrics' figures are counted.
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages import describe_transactions as dst
from ....protocol.messages import list_transactions as lst
from ....runtime import Runtime
from ...cluster.controller import Controller
from ...config import BrokerConfig
from ...purgatory import Purgatory
from ..find import CoordinatorFinder
from ..patterns import Pattern, PatternError
from ..runtime import Replicas
from . import listing
from .host import IdSource, TransactionHost
from .markers import Peers
from .requests import TransactionRequests
from .states import State


class TransactionCoordinator:
    """Every method of a request takes the decoded request and its version; gives the answer, or a Pending."""

    def __init__(
        self,
        controller: Controller,
        replicas: Replicas,
        config: BrokerConfig,
        runtime: Runtime,
        purgatory: Purgatory,
        ids: IdSource,
        peers: Peers,
        finder: CoordinatorFinder,
    ) -> None:
        self.host = host = TransactionHost(controller, replicas, config, runtime, purgatory, ids, peers)
        self.requests = TransactionRequests(host, controller.image, config, runtime, purgatory, finder)
        self._runtime = runtime
        self._patterns = listing.Patterns(purgatory, config["request.timeout.ms"])

    async def stop(self) -> None:
        await self._patterns.stop()
        await self.host.stop()

    def counts(self) -> dict[State, int]:
        """How many of the transactional ids coordinated here are in each state."""
        return listing.counts(list(self.host.shards.shards.values()))

    def unread(self) -> dict[int, str]:
        """Why transactions cannot be used yet, by partition of `__transaction_state`."""
        return self.host.shards.unread()

    def describe_transactions(self, request: dst.Request, version: int) -> Any:
        return listing.describe(request, lambda key: self.host.sure_shard_of(key).state, self.host.markers.left)

    def list_transactions(self, request: lst.Request, version: int) -> Any:
        shards = self.host.shards.shards
        answer = listing.listed(request, [shards[index] for index in sorted(shards)], self._runtime.wall_ms())
        if answer.error_code or not request.transactional_id_pattern:
            return answer
        try:
            pattern = Pattern(request.transactional_id_pattern)
        except PatternError:
            return lst.Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return self._patterns.shorten(answer, pattern)
