"""The requests under way to other nodes of the quorum: one at a time to a node, with a pause after one that failed."""

from __future__ import annotations

from dataclasses import dataclass, field

from .messages import Request


@dataclass(slots=True)
class Link:
    """in_flight: the id of the request that waits for its answer, until the deadline."""

    in_flight: int | None = None
    deadline_ms: int = 0
    retry_at_ms: int = 0


@dataclass(slots=True)
class Sent:
    node_id: int
    request: Request


@dataclass(slots=True)
class Links:
    timeout_ms: int
    pause_ms: int
    last_id: int = 0
    _sent: dict[int, Sent] = field(default_factory=dict)  # by request id
    _links: dict[int, Link] = field(default_factory=dict)  # by node

    def reset(self) -> None:
        """The role has changed: answers to earlier requests do not count any more, nor do pauses."""
        self._sent, self._links = {}, {}

    def begin(self, node_id: int, request: Request, now_ms: int) -> int | None:
        """The id for a request that may be sent now; None if another is under way, or one has just failed."""
        link = self._links.setdefault(node_id, Link())
        if link.in_flight is not None or now_ms < link.retry_at_ms:
            return None
        self.last_id += 1
        link.in_flight, link.deadline_ms = self.last_id, now_ms + self.timeout_ms
        self._sent[self.last_id] = Sent(node_id, request)
        return self.last_id

    def end(self, request_id: int) -> Sent | None:
        """A request is answered, or will not be. None if it does not count any more."""
        sent = self._sent.pop(request_id, None)
        if sent is not None:
            self._links[sent.node_id].in_flight = None
        return sent

    def pause(self, node_id: int, now_ms: int) -> None:
        if node_id in self._links:
            self._links[node_id].retry_at_ms = now_ms + self.pause_ms

    def is_pausing(self, node_id: int, now_ms: int) -> bool:
        return node_id in self._links and now_ms < self._links[node_id].retry_at_ms

    @property
    def is_any_in_flight(self) -> bool:
        return bool(self._sent)

    def overdue(self, now_ms: int) -> list[int]:
        """The ids of requests whose answers should have come."""
        return [
            link.in_flight for link in self._links.values() if link.in_flight is not None and now_ms >= link.deadline_ms
        ]

    def deadlines(self, now_ms: int) -> list[int]:
        times = [link.deadline_ms for link in self._links.values() if link.in_flight is not None]
        return times + [link.retry_at_ms for link in self._links.values() if link.retry_at_ms > now_ms]
