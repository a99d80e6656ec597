"""Counts of a history, and how long acknowledgements failed to come: pure functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

from integration_tests.histories.history import FAIL, INFO, OK, Fault, History
from integration_tests.histories.transactional_checker import committed_view


def counts(history: History) -> dict[str, int]:
    outcomes = Counter(send.outcome for send in history.sends)
    return {
        "sent": len(history.sends),
        "acknowledged": outcomes[OK],
        "failed": outcomes[FAIL],
        "indeterminate": outcomes[INFO],
        "read": sum(len(poll.records) for poll in history.polls),
        "final": sum(len(final.records) for final in history.finals),
        "commits": sum(commit.outcome == OK for commit in history.commits),
        "commits not acknowledged": sum(commit.outcome != OK for commit in history.commits),
        "committed offsets asked": len(history.committed),
    }


def faults(history: History) -> dict[str, int]:
    return dict(Counter(fault.kind for fault in history.faults))


def longest_silences_s(history: History) -> dict[str, float]:
    """By kind of fault, of two at once by both: longest time without an acknowledgement of one partition, from the
    fault's begin to the next fault's, or to the last send."""
    last_send_s = max((send.invoked_s for send in history.sends), default=0.0)
    steps = _steps(history)
    found: dict[str, float] = {}
    for index, step in enumerate(steps):
        until_s = steps[index + 1][0].began_s if index + 1 < len(steps) else last_send_s
        kind = " + ".join(sorted(fault.kind for fault in step))
        for acks in _acks(history).values():
            times = [step[0].began_s, *(at for at, _ in acks if step[0].began_s < at < until_s), until_s]
            gap = max(after - before for before, after in pairwise(times))
            found[kind] = max(found.get(kind, 0.0), gap)
    return {kind: round(seconds, 3) for kind, seconds in sorted(found.items())}


def recoveries_s(history: History, kind: str = "kill") -> list[float]:
    """For each partition whose leader had such a fault alone, all replicas being in sync: from its begin to the next
    acknowledgement of a later send."""
    found = []
    for step in _steps(history):
        if len(step) == 1 and step[0].kind == kind:
            for partition in [each for each in step[0].led if each not in step[0].behind]:
                later = [at for at, invoked in _acks(history)[partition] if invoked >= step[0].began_s]
                if later:
                    found.append(round(min(later) - step[0].began_s, 3))
    return sorted(found)


def _steps(history: History) -> list[list[Fault]]:
    """Faults that were there at the same time, or followed upon each other."""
    made: list[list[Fault]] = []
    for fault in history.faults:
        if made and fault.began_s < max(each.ended_s for each in made[-1]):
            made[-1].append(fault)
        else:
            made.append([fault])
    return made


def _acks(history: History) -> dict[int, list[tuple[float, float]]]:
    """By partition: when sends were acknowledged, in order, and invoked."""
    found: dict[int, list[tuple[float, float]]] = {send.partition: [] for send in history.sends}
    for send in history.sends:
        if send.outcome == OK:
            found[send.partition].append((send.completed_s, send.invoked_s))
    return {partition: sorted(each) for partition, each in found.items()}


def summary(history: History, anomalies: dict[str, list[str]]) -> dict[str, Any]:
    return {
        **counts(history),
        "faults": faults(history),
        "anomalies": {kind: len(texts) for kind, texts in anomalies.items()},
        "longest silences, s": longest_silences_s(history),
        "acknowledged again after kill -9 of the leader, s": recoveries_s(history),
        "examples": {kind: texts[:5] for kind, texts in anomalies.items()},
        "errors": dict(sorted(history.errors.items(), key=lambda each: -each[1])[:8]),
    }


def transactional_summary(history: History, anomalies: dict[str, list[str]]) -> dict[str, Any]:
    """Records count as acknowledged when their transaction is committed."""
    outcomes = Counter(each.outcome for each in history.transactions)
    copies = [each for each in history.transactions if each.group]
    return {
        **summary(replace(committed_view(history), errors=history.errors, committed=history.committed), anomalies),
        "transactions": {
            "begun": len(history.transactions),
            "committed": outcomes[OK],
            "not committed": outcomes[FAIL],
            "indeterminate": outcomes[INFO],
            "fenced": sum(each.fenced for each in history.transactions),
            "copying": len(copies),
            "copies committed": sum(each.outcome == OK for each in copies),
            "producers": len(history.starts),
            "committed by library": dict(
                Counter(each.worker.partition("-")[0] for each in history.transactions if each.outcome == OK)
            ),
        },
    }
