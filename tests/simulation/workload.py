"""What producers under test sent, what they were told, and what of it a log must and may hold.

Every value is unique: `name-number`, and sent once by its application.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.protocol.records import decode_batch

from .history import Batch


@dataclass(slots=True)
class Sent:
    """One value: its order among its producer's, and what became of it."""

    value: bytes
    order: int
    partition: int
    life: int  # of the producer
    sent_s: float
    acked: tuple[int, int] | None = None  # partition, offset
    acked_s: float = 0.0
    error: BaseException | None = None
    failed_s: float = 0.0


@dataclass(slots=True)
class Workload:
    """All values of one producing application. is_enough: it is to send no more."""

    name: str
    topic: str
    sent: dict[bytes, Sent] = field(default_factory=dict)
    lives: int = 0
    is_enough: bool = False
    done: bool = False

    @property
    def acked(self) -> list[Sent]:
        return [each for each in self.sent.values() if each.acked is not None]

    @property
    def failed(self) -> list[Sent]:
        return [each for each in self.sent.values() if each.error is not None]


@dataclass(slots=True, frozen=True)
class Stored:
    value: bytes
    partition: int
    offset: int
    key: str = ""


def values_in(batches: list[Batch], partition: int) -> list[Stored]:
    """All values of a partition's log, in order."""
    return [
        Stored(bytes(record.value or b""), partition, record.offset, bytes(record.key or b"").decode())
        for batch in batches
        for record in decode_batch(batch.data)
    ]


def check_stored(workloads: list[Workload], stored: list[Stored]) -> None:
    """Nothing that nobody sent, nothing twice, and each producer life's values in order, partition by partition."""
    known = {value: each for workload in workloads for value, each in workload.sent.items()}
    names = {value: workload.name for workload in workloads for value in workload.sent}
    seen: dict[bytes, Stored] = {}
    last: dict[tuple[str, int], Sent] = {}
    for each in stored:
        sent = known.get(each.value)
        assert sent is not None, f"{short(each.value)} at {each.partition}/{each.offset} was never sent"
        if each.value in seen:
            first = seen[each.value]
            raise AssertionError(
                f"{short(each.value)} is there twice: at {first.partition}/{first.offset} and "
                f"{each.partition}/{each.offset}"
            )
        seen[each.value] = each
        assert sent.partition == each.partition, f"{short(each.value)} is in partition {each.partition}"
        before = last.get((names[each.value], each.partition))
        if before is not None and before.life == sent.life:
            assert before.order < sent.order, f"{short(each.value)} comes after {short(before.value)}"
        last[names[each.value], each.partition] = sent


def check_acked(workloads: list[Workload], stored: list[Stored], forgiven: set[bytes] | None = None) -> list[Sent]:
    """Each acknowledged value is there, at the offset told; gives those that are not, all of them in `forgiven`."""
    by_value = {each.value: each for each in stored}
    lost = []
    for workload in workloads:
        for sent in workload.acked:
            found = by_value.get(sent.value)
            if found is None:
                assert forgiven is not None and sent.value in forgiven, (
                    f"{short(sent.value)} was acknowledged at {sent.acked} and is not there"
                )
                lost.append(sent)
            else:
                assert (found.partition, found.offset) == sent.acked, (
                    f"{short(sent.value)} was acknowledged at {sent.acked}, it is at {found.partition}/{found.offset}"
                )
    return lost


def short(value: bytes) -> str:
    return value.rstrip(b".").decode()
