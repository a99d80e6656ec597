"""Which promises of transactions a history breaks: a pure function, as `checker`, of whose checks it uses most.

What counts under read_committed is a history of its own, `committed_view`: a write of a committed transaction is
acknowledged, and one of a transaction that was aborted, or whose commit was never asked for, has failed for certain.
What read_uncommitted consumers see is another, `written_view`: there a write counts when its leader acknowledged it.
Transactions that copy records write and commit the offsets of what they read: each record is copied once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from integration_tests.histories import checker
from integration_tests.histories.history import (
    FAIL,
    INFO,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Commit,
    History,
    Send,
    Transaction,
    Write,
)

NEVER_COMMITTED = "phantom"  # what `checker` calls a value whose send has failed for certain


def anomalies(history: History) -> dict[str, list[str]]:
    """What is wrong, by the kind of anomaly; kinds that did not occur are left out. Each text names what and where."""
    found: dict[str, list[str]] = {}
    for kind, look in OF_TRANSACTIONS.items():
        found.setdefault(kind, []).extend(look(history))
    for partition in checker.partitions(committed_view(history)):
        for kind, of_partition in checker.OF_PARTITIONS.items():
            name = "aborted read" if kind == NEVER_COMMITTED else kind
            found.setdefault(name, []).extend(of_partition(partition))
    for partition in checker.partitions(written_view(history)):
        for kind, of_partition in checker.OF_PARTITIONS.items():
            found.setdefault(f"{kind}{UNCOMMITTED}", []).extend(of_partition(partition))
    return {kind: texts for kind, texts in found.items() if texts}


UNCOMMITTED = ", read uncommitted"


# --- Views ------------------------------------------------------------------------------------------------------------


def committed_view(history: History) -> History:
    """As if there were no transactions: its sends are answered when the commit is."""
    sends = list(history.sends)
    for transaction, write in _writes(history):
        outcome, told = transaction.outcome, write.offset if transaction.outcome == OK else -1
        send = Send(transaction.worker, write.partition, write.number, write.invoked_s, transaction.completed_s)
        send.outcome, send.offset, send.error = outcome, told, transaction.error
        sends.append(send)
    finals = [final for final in history.finals if final.isolation == READ_COMMITTED]
    return History(sends, history.polls, finals=finals, faults=history.faults)


def written_view(history: History) -> History:
    """What was written, whatever became of it. No consumer polls it but the final read."""
    sends = list(history.sends)
    for transaction, write in _writes(history):
        send = Send(transaction.worker, write.partition, write.number, write.invoked_s)
        send.outcome, send.offset = OK if write.offset >= 0 else INFO, write.offset
        sends.append(send)
    return History(sends, finals=[final for final in history.finals if final.isolation == READ_UNCOMMITTED])


def _writes(history: History) -> Iterator[tuple[Transaction, Write]]:
    for transaction in history.transactions:
        for write in transaction.writes:
            yield transaction, write


def commits(history: History) -> list[Commit]:
    """The offsets of transactions, as commits of a group."""
    return [
        Commit(each.worker, each.group, partition, offset, each.asked_s, each.completed_s, each.outcome, each.error)
        for each in history.transactions
        for partition, offset in each.offsets.items()
        if each.outcome != FAIL
    ]


# --- What is visible --------------------------------------------------------------------------------------------------


def _kept(history: History) -> dict[str, tuple[int, int]]:
    """Values of the final read under read_committed -> partition, offset."""
    return {
        value: (final.partition, offset)
        for final in history.finals
        if final.isolation == READ_COMMITTED
        for offset, value in final.records
    }


def _read_whole(history: History) -> list[int]:
    """Partitions whose final read under read_committed came to the end."""
    stuck = {final.partition for final in history.finals if not _at_end(final.end, final.records)}
    return [final.partition for final in history.finals if final.isolation == READ_COMMITTED and
            final.partition not in stuck]  # fmt: skip


def _at_end(end: int, records: list[tuple[int, str]]) -> bool:
    return end <= max((offset for offset, _ in records), default=-1) + 1


def torn(history: History) -> Iterator[str]:
    """Some of a transaction's writes are in the final read, others are not; whatever its producer was told."""
    kept = _kept(history)
    whole = _read_whole(history)
    for each in history.transactions:
        writes = [write for write in each.writes if write.partition in whole]
        there = [write for write in writes if each.value(write) in kept]
        if there and len(there) < len(writes):
            missing = [each.value(write) for write in writes if each.value(write) not in kept]
            yield (
                f"{_named(each)}: {[each.value(write) for write in there][:5]} are in the final read, "
                f"{missing[:5]} are not"
            )


def dirty_reads(history: History) -> Iterator[str]:
    """Read under read_committed before the commit was asked for: for want of overwritten values, what G1b is here."""
    asked = {transaction.value(write): transaction.asked_s for transaction, write in _writes(history)}
    for poll in history.polls:
        for offset, value in poll.records:
            if poll.completed_s < asked.get(value, -math.inf) < math.inf:
                yield (
                    f"partition {poll.partition} offset {offset}: {value}, read by {poll.worker} at "
                    f"{poll.completed_s:.3f} s, but its commit was asked for at {asked[value]:.3f} s"
                )


def zombies(history: History) -> Iterator[str]:
    """A commit counts that was asked for after another producer had started with the same transactional id."""
    kept = _kept(history)
    for each in history.transactions:
        over = _fenced_by(history, each)
        if over is not None and (each.outcome == OK or any(each.value(write) in kept for write in each.writes)):
            yield f"{_named(each)}: asked for at {each.asked_s:.3f} s, after {over}"


def _fenced_by(history: History, transaction: Transaction) -> str | None:
    own_s = min((each.invoked_s for each in history.starts if each.worker == transaction.worker), default=0.0)
    for start in history.starts:
        later = start.transactional_id == transaction.transactional_id and start.invoked_s > own_s
        if later and start.outcome == OK and start.completed_s < transaction.asked_s < math.inf:
            return f"{start.worker} had started at {start.completed_s:.3f} s"
    return None


def _named(transaction: Transaction) -> str:
    return f"transaction of {transaction.worker} begun at {transaction.begun_s:.3f} s ({transaction.outcome})"


# --- Offsets ----------------------------------------------------------------------------------------------------------


def offsets_gone_back(history: History) -> Iterator[str]:
    yield from checker.commits_gone_back(History(commits=commits(history), committed=history.committed))


def aborted_offsets(history: History) -> Iterator[str]:
    """The coordinator tells an offset that no transaction committed whose commit had been asked for by then."""
    known = commits(history)
    for told in history.committed:
        explained = any(
            (each.group, each.partition, each.offset) == (told.group, told.partition, told.offset)
            and each.invoked_s <= told.completed_s
            for each in known
        )
        if told.offset >= 0 and not explained:
            yield f"group {told.group} partition {told.partition}: {told.offset} at {told.completed_s:.3f} s"


def _last_told(history: History) -> dict[int, int]:
    """By partition: the offset that the group had at last."""
    return {told.partition: told.offset for told in history.committed}


def _copies(history: History) -> dict[tuple[int, int], list[tuple[str, int, int]]]:
    """Partition and offset of a record -> the copies of it in the final read: value, partition, offset."""
    kept = _kept(history)
    found: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for transaction, write in _writes(history):
        value = transaction.value(write)
        if write.source is not None and value in kept:
            found.setdefault(write.source, []).append((value, *kept[value]))
    return found


def copied_twice(history: History) -> Iterator[str]:
    """A record has two copies in the final read."""
    for (partition, offset), copies in _copies(history).items():
        if len(copies) > 1:
            yield f"partition {partition} offset {offset}: {copies}"


def offsets_without_values(history: History) -> Iterator[str]:
    """Below the group's offset, and without a copy in the final read: a transaction's offsets count, its writes not."""
    told, copies = _last_told(history), _copies(history)
    for value, (partition, offset) in _kept(history).items():
        if offset < told.get(partition, -1) and (partition, offset) not in copies:
            yield f"partition {partition} offset {offset}: {value} has no copy, and the group is at {told[partition]}"


def values_without_offsets(history: History) -> Iterator[str]:
    """Copied, and not below the group's offset: a transaction's writes count, its offsets not."""
    told = _last_told(history)
    for (partition, offset), copies in _copies(history).items():
        if partition in told and offset >= told[partition]:
            yield f"partition {partition} offset {offset}: copied as {copies}, and the group is at {told[partition]}"


def copies_reordered(history: History) -> Iterator[str]:
    """Copies of a partition in another order than the records have."""
    placed = sorted(
        (target, at, source, offset)
        for (source, offset), copies in _copies(history).items()
        for _, target, at in copies
    )
    last: dict[tuple[int, int], int] = {}
    for target, at, source, offset in placed:
        if offset < (before := last.get((target, source), -1)):
            yield f"partition {target} offset {at}: copy of {source} offset {offset}, after the copy of {before}"
        last[target, source] = max(before, offset)


def stuck(history: History) -> Iterator[str]:
    """A final read that does not come to the end: under read_committed, a transaction is open for ever. And whatever
    else has not ended after all faults."""
    for final in history.finals:
        if not _at_end(final.end, final.records):
            last = max((offset for offset, _ in final.records), default=-1)
            yield f"partition {final.partition}: under {final.isolation} it ends at {last}, the log at {final.end}"
    yield from history.unfinished


Look = Callable[[History], Iterable[str]]
OF_TRANSACTIONS: dict[str, Look] = {
    "torn": torn,
    "dirty read": dirty_reads,
    "zombie": zombies,
    "committed offset going back": offsets_gone_back,
    "aborted offset": aborted_offsets,
    "copied twice": copied_twice,
    "offsets without values": offsets_without_values,
    "values without offsets": values_without_offsets,
    "copies reordered": copies_reordered,
    "unfinished": stuck,
}
