"""The answers of one connection that are due, in the order of its requests: some are there, others wait.

No request is begun behind one that waits, except a Produce behind other Produces. Those have been appended and wait for
the disk or for replicas, so that the next need not wait for them: one fsync serves all that a client has in flight
(group commit). One that is not appended yet, since its transaction must be verified first, holds up those behind it
(`Pending.holds_up`), or a producer's later batches would be refused as out of order. Kafka's broker handles one request
of a connection at a time. Clients see the same, since the order is kept in the log and in the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..purgatory import Pending

if TYPE_CHECKING:
    from ._route import Route

DUE_MAX = 64  # produce requests of one connection that wait


class Due:
    """One answer. `pending` is None when it is there."""

    __slots__ = ("answer", "began_ns", "correlation", "pending", "route")

    def __init__(self, route: Route, correlation: int, began_ns: int, pending: Pending | None, answer: Any) -> None:
        self.route = route
        self.correlation = correlation
        self.began_ns = began_ns
        self.pending = pending
        self.answer = answer


class DueAnswers(list[Due]):
    """The line. It is a list, since each request asks several times whether it is empty."""

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return len(self) >= DUE_MAX

    def add(self, route: Route, correlation: int, began_ns: int, pending: Pending | None, answer: Any = None) -> Due:
        due = Due(route, correlation, began_ns, pending, answer)
        self.append(due)
        return due

    def complete(self, due: Due, answer: Any) -> list[Due]:
        """An answer has come. Gives those that can be sent now, in order."""
        due.pending, due.answer = None, answer
        count = 0
        while count < len(self) and self[count].pending is None:
            count += 1
        ready = self[:count]
        del self[:count]
        return ready

    def abandon(self) -> None:
        """The connection has ended: drop all, and end what waits."""
        line = self[:]
        self.clear()
        for due in line:
            if due.pending is not None:
                due.pending.abandon()
