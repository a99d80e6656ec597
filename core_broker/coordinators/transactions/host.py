"""The transactions that this broker coordinates: their records, markers, timeouts and expiry.

Requests are handled by `requests.py`. A record is written, and only once it is committed does it count: until then
everybody else who asks for that transaction has to wait. A decided transaction goes on by itself, from broker to
broker if need be: its markers are written (`markers.py`), then its last record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import islice
from typing import Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....runtime import Runtime
from ...cluster.controller import Controller
from ...cluster.features import TRANSACTION_VERSION
from ...cluster.image import Delta
from ...cluster.topic_names import TRANSACTION_STATE
from ...config import BrokerConfig
from ...purgatory import Purgatory
from ..elections import Elections
from ..runtime import CoordinatorRuntime, Record, Replicas, Shard, client_error
from ..timers import Timers
from . import transaction
from .markers import Markers, Marking, Peers
from .shard import Entry, TransactionShard
from .states import DECIDED
from .transaction import NEEDS_ID, NO_EPOCH, Decision, Transaction

MAX_TRANSACTIONS = 100_000  # ids of one shard; a producer that would make one more is refused
MAX_EXPIRED = 1_000  # ids that are forgotten at a time
SLICE_MS = 100  # until the next of them are
ABORT, EXPIRE = "abort", "expire"
ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRE_INTERVAL = "transaction.remove.expired.transaction.cleanup.interval.ms"
EXPIRATION = "transactional.id.expiration.ms"

Ask = Callable[[Entry | None, int | None], Decision]  # of an entry, if there is one, and a fresh producer id
Done = Callable[[ErrorCode, Transaction | None], None]  # given the answer, and the transaction as it is then

log = logging.getLogger(__name__)


class IdSource(Protocol):
    """Producer ids that nobody has had."""

    def take(self) -> int | None:
        """None when none is at hand."""

    def wait(self, callback: Callable[[int | KafkaError], None]) -> None: ...


class TransactionHost:
    """`shards` are the partitions of `__transaction_state` that this broker leads.

    `start` subscribes to the controller, and must do so after the replicas have: they open the partitions first.

    has_session: whether no other node can coordinate them by now. One that was cut off has the transactions of that
    time in its memory: it tells nobody of them.
    """

    def __init__(
        self,
        controller: Controller,
        replicas: Replicas,
        config: BrokerConfig,
        runtime: Runtime,
        purgatory: Purgatory,
        ids: IdSource,
        peers: Peers,
    ) -> None:
        self.has_session: Callable[[], bool] = lambda: True
        self._controller = controller
        self._image = controller.image
        self._config = config
        self._runtime = runtime
        self._ids = ids
        self._timers = Timers(self._fired)
        self.shards = CoordinatorRuntime(
            TRANSACTION_STATE, self._new_shard, replicas, runtime, purgatory, "transactions"
        )
        self.elections = Elections(self.shards, self._image, config["node.id"])
        self.markers = Markers(self._image, peers, config["request.timeout.ms"], self._marked)

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Coordinate the partitions that this broker leads, now and later. They are read in the background."""
        self._controller.subscribe(self.on_change)
        self.elections.on_change(self._image.everything())

    async def stop(self) -> None:
        await self.markers.close()
        await self.shards.stop()
        self._timers.close()

    def on_change(self, delta: Delta) -> None:
        """Follow a change of the metadata image."""
        self.elections.on_change(delta)
        self.markers.on_change(delta)

    @property
    def level(self) -> int:
        """The finalized transaction.version."""
        return self._image.features.get(TRANSACTION_VERSION, 0)

    def _new_shard(self, index: int) -> TransactionShard:
        loop = asyncio.get_running_loop()
        return TransactionShard(lambda: self.level, loop.time, lambda: self._loaded(index), self.markers.drop)

    def _loaded(self, index: int) -> None:
        shard = self.shards.shards[index]
        current = [entry.current for entry in shard.state.entries.values()]
        self.markers.send(shard, [each for each in current if each.state in DECIDED])
        self._timers.schedule((shard, ABORT), self._config[ABORT_INTERVAL])
        self._timers.schedule((shard, EXPIRE), self._config[EXPIRE_INTERVAL])

    def sure_shard_of(self, transactional_id: str) -> Shard[TransactionShard]:
        """The shard that a transactional id belongs to. Raises KafkaError: NOT_COORDINATOR where another node may be
        the coordinator by now, too, COORDINATOR_LOAD_IN_PROGRESS, …"""
        shard = self.elections.shard_of(transactional_id)
        if not self.has_session():
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another node may be the coordinator by now")
        return shard

    # --- Records ------------------------------------------------------------------------------------------------------

    def decide(self, transactional_id: str, ask: Ask, done: Done, fresh_id: int | None = None) -> None:
        """Have a transaction decided, write what follows, and call `done` once that is committed."""
        try:
            shard = self.sure_shard_of(transactional_id)
        except KafkaError as error:
            done(client_error(error.code), None)
            return
        entry = shard.state.entries.get(transactional_id)
        decision = ask(entry, fresh_id)
        if decision is NEEDS_ID:
            self._with_id(lambda found: self.decide(transactional_id, ask, done, found), done)
        elif decision.new is None:
            done(decision.answer, None if entry is None else entry.current)
        elif entry is None and len(shard.state.entries) >= MAX_TRANSACTIONS:
            log.error("%s has %d transactional ids: no more are taken", shard.partition, MAX_TRANSACTIONS)
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        else:
            self._store(shard, decision, done)

    def _with_id(self, use: Callable[[int], None], done: Done) -> None:
        """`use` a fresh producer id, or tell why there is none."""

        def found(outcome: int | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                done(client_error(outcome.code), None)
            else:
                use(outcome)

        fresh_id = self._ids.take()
        if fresh_id is not None:
            use(fresh_id)
        else:
            self._ids.wait(found)

    def _store(self, shard: Shard[TransactionShard], decision: Decision, done: Done) -> None:
        new = decision.new
        assert new is not None
        key = new.transactional_id
        entry = shard.state.entries.get(key)
        if entry is None:  # nobody else may have this id meanwhile
            entry = shard.state.entries[key] = Entry(replace(new, epoch=NO_EPOCH))
        entry.pending = new
        try:
            offset = self.shards.write(shard, [(key, new)], replay=False)
        except KafkaError as error:
            entry.pending = None
            if entry.current.epoch == NO_EPOCH:
                shard.state.forget(key)
            done(client_error(error.code), None)
            return

        def committed(error: KafkaError | None) -> None:
            if error is None and self.shards.shards.get(shard.index) is not shard:
                error = KafkaError(ErrorCode.NOT_COORDINATOR)
            if error is not None:  # the shard is another broker's, or to be read again
                done(client_error(error.code), None)
                return
            entry.pending = None
            shard.state.take(key, new)
            done(decision.answer, new)
            if new.state in DECIDED:
                self.markers.send(shard, [new])

        self.shards.when_committed(shard, offset, committed)

    def _marked(self, shard: Shard[TransactionShard], markings: list[Marking]) -> list[Marking]:
        """Write the last records of transactions that have all their markers, in few batches; gives those markings that
        are to be brought again, as nothing can be written now."""
        now_ms = self._runtime.wall_ms()
        news = [transaction.completed(marking.transaction, now_ms) for marking in markings]
        try:
            offset = self.shards.write(shard, [(new.transactional_id, new) for new in news], replay=False, atomic=False)
        except KafkaError as error:
            log.warning("%s: %d transactions cannot be completed yet: %s", shard.partition, len(news), error.message)
            return markings

        def committed(error: KafkaError | None) -> None:
            if error is None and self.shards.shards.get(shard.index) is shard:
                for new in news:
                    shard.state.take(new.transactional_id, new)

        self.shards.when_committed(shard, offset, committed)
        return []

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _fired(self, name: Hashable) -> None:
        assert isinstance(name, tuple)
        shard: Shard[TransactionShard] = name[0]
        if self.shards.shards.get(shard.index) is not shard:
            return  # the shard is another broker's now, or was read again
        if name[1] == ABORT:
            self._timers.schedule(name, self._config[ABORT_INTERVAL])
            self._abort_timed_out(shard)
        else:
            is_left = self._expire(shard)
            self._timers.schedule(name, SLICE_MS if is_left else self._config[EXPIRE_INTERVAL])

    def _abort_timed_out(self, shard: Shard[TransactionShard]) -> None:
        if not self.has_session():
            return  # its producers may have gone on elsewhere
        now_ms, now_s = self._runtime.wall_ms(), asyncio.get_running_loop().time()
        for key, entry in list(shard.state.open.items()):
            if entry.current.has_timed_out(now_ms, (now_s - entry.open_since_s) * 1000):
                self._abort(key, entry.current)

    def _abort(self, key: str, known: Transaction) -> None:
        def ask(entry: Entry | None, fresh_id: int | None) -> Decision:
            if entry is None or entry.pending is not None or entry.current is not known:
                return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)  # its producer was faster
            return transaction.abort_timed_out(
                known, level=self.level, fresh_id=fresh_id, now_ms=self._runtime.wall_ms()
            )

        def done(code: ErrorCode, new: Transaction | None) -> None:
            if not code:
                log.info("transaction %s of producer %d timed out: it is aborted", key, known.producer_id)
            elif code != ErrorCode.CONCURRENT_TRANSACTIONS:
                log.warning("transaction %s timed out, and cannot be aborted yet: %s", key, KafkaError(code).name)

        self.decide(key, ask, done)

    def _expire(self, shard: Shard[TransactionShard]) -> bool:
        """Forget ids that were not used for long. Returns whether there may be more of them."""
        now_ms, expiration_ms = self._runtime.wall_ms(), self._config[EXPIRATION]
        expired = (
            key
            for key, entry in shard.state.entries.items()
            if entry.pending is None and transaction.is_expired(entry.current, now_ms, expiration_ms)
        )
        tombstones: list[Record] = [(key, None) for key in islice(expired, MAX_EXPIRED)]
        try:  # replayed at once: whatever is written of such an id from now on comes after its tombstone
            self.shards.write(shard, tombstones, atomic=False)
        except KafkaError as error:
            log.error("%s: expired transactional ids could not be removed: %s", shard.partition, error)
            return False
        return len(tombstones) == MAX_EXPIRED
