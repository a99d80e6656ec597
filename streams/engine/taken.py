"""What a stream has taken from a batch and its agent has not done, though others were asked for."""

from __future__ import annotations

from .event import Event


class Taken:
    """Oldest first. waiting: for more, to be given together; in_hand: what the agent was given together. None of them
    is done, so that no position may be behind them."""

    def __init__(self) -> None:
        self.waiting: list[Event] = []
        self.in_hand: list[Event] = []

    @property
    def first(self) -> Event | None:
        for events in (self.in_hand, self.waiting):
            if events:
                return events[0]
        return None

    def give(self, events: list[Event], rest: list[Event]) -> list[Event]:
        """The agent is given these, and the rest waits. Returns a list that the agent may change."""
        self.in_hand, self.waiting = events, rest
        return events.copy()

    def done(self) -> None:
        """The agent has asked for more."""
        self.in_hand = []

    def failed_with(self, current: Event) -> list[Event]:
        """What an error is about that the agent has raised, with this as its current event."""
        return self.in_hand or [current]

    def leave_out(self, current: Event) -> None:
        """Forget what the error was about; the others go on waiting."""
        self.in_hand = []
        at = current.topic, current.partition, current.offset
        self.waiting = [each for each in self.waiting if (each.topic, each.partition, each.offset) != at]
