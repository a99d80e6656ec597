"""Which promises of a Kafka cluster a history breaks: a pure function, by the anomalies of Jepsen's Kafka workload.

Producers send with acks=all, and are idempotent; topics have no retention, no transaction and no unclean election. Then
what is acknowledged or was read stays, once, at its offset, in the order of its producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from integration_tests.histories.history import FAIL, OK, Commit, History, Poll, Send


@dataclass
class Partition:
    """What is known of one partition. at: offset -> value -> who saw it there."""

    index: int
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    final: dict[int, str] | None = None
    end: int = -1
    at: dict[int, dict[str, list[str]]] = field(default_factory=dict)

    def saw(self, offset: int, value: str, who: str) -> None:
        self.at.setdefault(offset, {}).setdefault(value, []).append(who)

    def __str__(self) -> str:
        return f"partition {self.index}"


def anomalies(history: History) -> dict[str, list[str]]:
    """What is wrong, by the kind of anomaly; kinds that did not occur are left out. Each text names what and where."""
    found: dict[str, list[str]] = {}
    known = partitions(history)
    for kind, look in OF_PARTITIONS.items():
        for each in known:
            found.setdefault(kind, []).extend(look(each))
    for kind, search in OF_HISTORIES.items():
        found.setdefault(kind, []).extend(search(history))
    return {kind: texts for kind, texts in found.items() if texts}


def partitions(history: History) -> list[Partition]:
    """What the history tells of each, in the order of their numbers."""
    made: dict[int, Partition] = {}

    def of(index: int) -> Partition:
        return made.setdefault(index, Partition(index))

    for send in history.sends:
        of(send.partition).sends.append(send)
        if send.outcome == OK and send.offset >= 0:
            of(send.partition).saw(send.offset, send.value, f"acknowledged to {send.worker}")
    for poll in history.polls:
        of(poll.partition).polls.append(poll)
        for offset, value in poll.records:
            of(poll.partition).saw(offset, value, f"read by {poll.worker} at {poll.completed_s:.3f} s")
    for final in history.finals:
        each = of(final.partition)
        each.final, each.end = dict(final.records), final.end
        for offset, value in final.records:
            each.saw(offset, value, "in the final read")
    return [made[index] for index in sorted(made)]


# --- Of one partition -------------------------------------------------------------------------------------------------


def lost_writes(partition: Partition) -> Iterator[str]:
    """Acknowledged, not at the end of the log, and not in the final read."""
    if partition.final is None:
        return
    kept = set(partition.final.values())
    highest = max(partition.final, default=-1)
    for send in partition.sends:
        if send.outcome == OK and send.value not in kept and send.offset <= highest:
            yield f"{partition}: {send.value} was acknowledged at offset {send.offset}, at {send.completed_s:.3f} s"


def unseen(partition: Partition) -> Iterator[str]:
    """Acknowledged after all that the final read has: it did not come so far, or the end of the log is gone."""
    if partition.final is None:
        if any(send.outcome == OK for send in partition.sends):
            yield f"{partition}: there is no final read"
        return
    kept = set(partition.final.values())
    highest = max(partition.final, default=-1)
    for send in partition.sends:
        if send.outcome == OK and send.value not in kept and send.offset > highest:
            yield f"{partition}: {send.value} was acknowledged at {send.offset}, the final read ends at {highest}"


def vanished(partition: Partition) -> Iterator[str]:
    """Read by a consumer, so it was below the high watermark, and not in the final read."""
    if partition.final is None:
        return
    kept = set(partition.final.values())
    for poll in partition.polls:
        for offset, value in poll.records:
            if value not in kept:
                yield f"{partition}: {value} at offset {offset}, read by {poll.worker} at {poll.completed_s:.3f} s"


def duplicates(partition: Partition) -> Iterator[str]:
    """A value at two offsets."""
    offsets: dict[str, list[int]] = {}
    for offset in sorted(partition.at):
        for value in partition.at[offset]:
            offsets.setdefault(value, []).append(offset)
    for value, where in offsets.items():
        if len(where) > 1:
            yield f"{partition}: {value} at offsets {where}"


def inconsistent_offsets(partition: Partition) -> Iterator[str]:
    """Two values at one offset."""
    for offset in sorted(partition.at):
        if len(values := partition.at[offset]) > 1:
            told = "; ".join(f"{value} {', '.join(who[:3])}" for value, who in values.items())
            yield f"{partition} offset {offset}: {told}"


def reordered(partition: Partition) -> Iterator[str]:
    """Records of a producer not in the order in which it sent them."""
    last: dict[str, tuple[int, int]] = {}  # worker -> number, offset
    for offset in sorted(partition.at):
        for value in partition.at[offset]:
            worker, _, number = value.rpartition(":")
            before = last.get(worker, (-1, -1))
            if int(number) < before[0]:
                yield f"{partition}: {value} at offset {offset}, after {worker}:{before[0]} at {before[1]}"
            last[worker] = max(before, (int(number), offset))


def phantoms(partition: Partition) -> Iterator[str]:
    """Read, but never sent to this partition, or certainly not sent (an aborted read)."""
    outcomes = {send.value: send.outcome for send in partition.sends}
    for offset in sorted(partition.at):
        for value in partition.at[offset]:
            if value not in outcomes:
                yield f"{partition}: {value} at offset {offset} was never sent"
            elif outcomes[value] == FAIL:
                yield f"{partition}: {value} at offset {offset}, whose send failed for certain"


def nonmonotonic_polls(partition: Partition) -> Iterator[str]:
    """A consumer that went back without a seek or another assignment."""
    for before, offset, poll in _steps(partition.polls):
        if offset <= before:
            yield f"{partition}: {poll.worker} read offset {offset} after {before} at {poll.completed_s:.3f} s"


def skipped_polls(partition: Partition) -> Iterator[str]:
    """A consumer that passed over records without a seek or another assignment."""
    known = sorted(partition.at)
    for before, offset, poll in _steps(partition.polls):
        if offset > before + 1 and (passed := [each for each in known if before < each < offset]):
            yield (
                f"{partition}: {poll.worker} read offset {offset} after {before} at {poll.completed_s:.3f} s, passing "
                f"{len(passed)} records from {passed[0]} on"
            )


def _steps(polls: Iterable[Poll]) -> Iterator[tuple[int, int, Poll]]:
    """Each two offsets that a consumer was given one after the other in one span."""
    last: dict[tuple[str, int], int] = {}
    for poll in polls:
        for offset, _ in poll.records:
            if (before := last.get((poll.worker, poll.span))) is not None:
                yield before, offset, poll
            last[poll.worker, poll.span] = offset


# --- Of groups --------------------------------------------------------------------------------------------------------


def commits_gone_back(history: History) -> Iterator[str]:
    """The coordinator tells an offset below one that it had acknowledged before it was asked.

    A commit without an answer may come into force at any time, and explains what it says.
    """
    for told in history.committed:
        of = [each for each in history.commits if (each.group, each.partition) == (told.group, told.partition)]
        acked = [each for each in of if each.outcome == OK and each.completed_s < told.invoked_s]
        if not acked:
            continue
        highest = max(acked, key=lambda each: each.offset)
        if told.offset < highest.offset and not any(_explains(each, told.offset, highest) for each in of):
            yield (
                f"group {told.group} partition {told.partition}: {told.offset} at {told.completed_s:.3f} s, but "
                f"{highest.offset} was acknowledged to {highest.worker} at {highest.completed_s:.3f} s"
            )


def _explains(commit: Commit, offset: int, highest: Commit) -> bool:
    return commit.offset == offset and commit.outcome != FAIL and commit.completed_s > highest.invoked_s


def passed_by_groups(history: History) -> Iterator[str]:
    """Below the offset that a group committed, and given to no member: each commits what it was given."""
    finals = {final.partition: final for final in history.finals}
    given: dict[tuple[str, int], set[int]] = {}
    for poll in history.polls:
        if poll.group:
            given.setdefault((poll.group, poll.partition), set()).update(offset for offset, _ in poll.records)
    reached: dict[tuple[str, int], int] = {}
    for commit in history.commits:
        if commit.outcome == OK:
            key = commit.group, commit.partition
            reached[key] = max(reached.get(key, 0), commit.offset)
    for (group, partition), end in reached.items():
        final = finals.get(partition)
        had = given.get((group, partition), set())
        missed = [offset for offset, _ in final.records if offset < end and offset not in had] if final else []
        if missed:
            yield f"group {group} partition {partition} committed {end}, and was never given {missed[:10]}"


def unfinished(history: History) -> Iterator[str]:
    """Not an anomaly of Jepsen's: all faults have ended, and something is not as it was before."""
    yield from history.unfinished


OF_PARTITIONS: dict[str, Callable[[Partition], Iterator[str]]] = {
    "lost write": lost_writes,
    "unseen": unseen,
    "vanished": vanished,
    "duplicate": duplicates,
    "inconsistent offset": inconsistent_offsets,
    "reordered": reordered,
    "phantom": phantoms,
    "nonmonotonic poll": nonmonotonic_polls,
    "skipped poll": skipped_polls,
}
OF_HISTORIES: dict[str, Callable[[History], Iterator[str]]] = {
    "committed offset going back": commits_gone_back,
    "passed by the group": passed_by_groups,
    "unfinished": unfinished,
}
