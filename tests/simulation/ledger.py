"""What each crash of a broker left on its disk, and what follows from it for the end of the run."""

from __future__ import annotations

import asyncio

from isthmus.client.errors import ClientError
from isthmus.protocol.errors import KafkaError

from .product import BrokerHost
from .runner import Simulation
from .workload import Sent, Stored, Workload, check_acked, check_stored, short, values_in

ON_THE_WIRE_S = 0.4  # for which an answer may be under way when its broker dies
NAMED = (ClientError, KafkaError)


class Ledger:
    """See the module. `crash` is one fault and the checks after it, `check_end` the rest."""

    def __init__(
        self, sim: Simulation, host: BrokerHost, topic: str, partitions: int, workloads: list[Workload]
    ) -> None:
        self.sim = sim
        self.host = host
        self.topic = topic
        self.partitions = partitions
        self.workloads = workloads
        self.acks_are_synced = (
            host.options.get("durability") == "fsync" or host.options.get("log.flush.interval.messages") == "1"
        )
        self.must_stay: dict[bytes, str] = {}  # value -> why; synced
        self.windows: list[tuple[float, set[bytes]]] = []  # what a power cut may have lost if acknowledged by then

    def stored(self, *, durable: bool = False) -> list[Stored]:
        return [
            each
            for index in range(self.partitions)
            for each in values_in(self.host.partition(self.topic, index, durable=durable), index)
        ]

    async def crash(self, *, power: bool | None = None) -> None:
        """A kill, or a `power` cut (None: drawn), at a random moment or disk operation."""
        sim, host, chance = self.sim, self.host, self.sim.random
        if power is None:
            power = chance.random() < 0.6
        before: list[list[Stored]] = []
        if chance.random() < 0.5:
            # The kill itself happens within a disk operation; look at the disk just before it does.
            host.machine.kill_at_disk_operation(chance.randint(1, 40), power=power)
            hook = host.machine.disk.crash_hook
            assert hook is not None

            def crash() -> None:
                before.append(self.stored(durable=power))
                hook()

            host.machine.disk.crash_hook = crash
            await asyncio.sleep(chance.uniform(0.2, 2.0))
        else:
            await asyncio.sleep(chance.choice((0.0, 0.03, 1.0)) * chance.uniform(0.05, 1.0))
        if host.alive:
            host.machine.disk.crash_countdown = 0
            before.append(self.stored(durable=power))
            host.kill(power=power)
        killed_s = sim.loop.time()
        stays = {each.value: "written" if not power else "synced" for each in before[0]}
        if power:
            self.must_stay.update(stays)
        if not power or self.acks_are_synced:
            stays.update((sent.value, "acknowledged") for workload in self.workloads for sent in workload.acked)
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        await host.up(crash_chance=0.2, power=power)
        after = {each.value for each in self.stored()}
        for value, why in {**self.must_stay, **stays}.items():
            assert value in after or self.is_forgiven(value), f"{short(value)}, {why} before a crash, is lost"
        if power and not self.acks_are_synced:
            gone = {sent.value for workload in self.workloads for sent in workload.sent.values()} - after
            self.windows.append((killed_s + ON_THE_WIRE_S, gone))
            lost = [sent for workload in self.workloads for sent in workload.acked if sent.value in gone]
            sim.counters["crashes_that_lost_acked"] += bool(lost)

    def is_forgiven(self, value: bytes) -> bool:
        """Whether a value was acknowledged, and then lost by a power cut that was allowed to lose it."""
        sent = next(workload.sent[value] for workload in self.workloads if value in workload.sent)
        return sent.acked is not None and any(
            value in gone and sent.acked_s <= deadline for deadline, gone in self.windows
        )

    def check_end(self) -> None:
        stored = self.stored()
        check_stored(self.workloads, stored)
        acked = [sent.value for workload in self.workloads for sent in workload.acked]
        lost = check_acked(self.workloads, stored, {value for value in acked if self.is_forgiven(value)})
        for each in lost:
            self.check_told(each)
        self.sim.counters["lost_acked"] += len(lost)

    def check_told(self, lost: Sent) -> None:
        """The producer that sent `lost` did not go on in that partition as if nothing had happened.

        But where it was in the first segment of a log that was never synced, whose name a power cut has taken alone:
        see `startup/recovery.py`.
        """
        assert lost.acked is not None
        batches = self.host.partition(self.topic, lost.partition)
        if batches and lost.acked[1] < batches[0].base_offset:
            self.sim.counters["lost_with_the_first_segment"] += 1
            return
        workload = next(w for w in self.workloads if lost.value in w.sent)
        later = [
            sent
            for sent in workload.sent.values()
            if sent.life == lost.life and sent.partition == lost.partition and sent.acked_s > lost.acked_s
        ]
        values = {each.value for each in self.stored()}
        silent = [sent for sent in later if sent.acked is not None and sent.value in values and sent.order > lost.order]
        assert not silent, (
            f"{short(lost.value)} was lost at {lost.acked}, and its producer went on to {short(silent[0].value)} at "
            f"{silent[0].acked} without an error"
        )
        errors = [sent.error for sent in workload.sent.values() if sent.life == lost.life and sent.error is not None]
        if errors:
            assert all(isinstance(error, NAMED) and str(error) for error in errors), errors
            self.sim.counters["told_of_loss"] += 1
