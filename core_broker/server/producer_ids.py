"""Producer ids for clients, out of blocks that the controller allocates, so that no id is given twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import allocate_producer_ids
from ..cluster.controller.producer_ids import BLOCK_SIZE, AllocateProducerIds, ProducerIdBlock

if TYPE_CHECKING:
    from ..cluster.controller import Controller
    from ..controller_channel import ControllerChannel

MAX_WAITING = 10_000


class ProducerIds:
    """The producer ids of one broker. channel: the way to the active controller; None where there is no other node."""

    def __init__(self, controller: Controller, broker_id: int, channel: ControllerChannel | None = None) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._channel = channel
        self._asking: asyncio.Task[None] | None = None
        self._next = self._end = 0
        self._waiting: list[Callable[[int | KafkaError], None]] = []

    def take(self) -> int | None:
        """An id; None when a block must be asked for first."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def wait(self, callback: Callable[[int | KafkaError], None]) -> None:
        """Call `callback(id or error)` when the next block is there."""
        if len(self._waiting) >= MAX_WAITING:
            callback(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too many producers wait for an id"))
            return
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        if self._channel is None:
            self._controller.submit(AllocateProducerIds(broker_id=self._broker_id, count=BLOCK_SIZE), self._given)
        else:
            loop = asyncio.get_running_loop()
            self._asking = loop.create_task(self._ask_controller(self._channel), name="a block of producer ids")

    async def _ask_controller(self, channel: ControllerChannel) -> None:
        request = allocate_producer_ids.Request(
            broker_id=self._broker_id, broker_epoch=self._controller.image.broker_epoch(self._broker_id)
        )
        try:
            answer = await channel.request(request, self._controller.config["request.timeout.ms"])
        except KafkaError as error:
            self._given(ProducerIdBlock(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message))
            return
        if answer.error_code:
            reason = f"the controller assigned no producer ids: {KafkaError(answer.error_code).name}"
            self._given(ProducerIdBlock(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason))
        else:
            block = ProducerIdBlock(first_producer_id=answer.producer_id_start, count=answer.producer_id_len)
            self._given(block)

    def _given(self, result: ProducerIdBlock) -> None:
        waiting, self._waiting = self._waiting, []
        if result.error_code:
            error = KafkaError(result.error_code, result.error_message or "")
            for callback in waiting:
                callback(error)
            return
        self._next, self._end = result.first_producer_id, result.first_producer_id + result.count
        served = waiting[: result.count]
        self._next += len(served)
        self._waiting = waiting[result.count :]  # those for whom the block has none wait for the next
        if self._waiting:
            self._ask()
        for producer_id, callback in enumerate(served, result.first_producer_id):
            callback(producer_id)
