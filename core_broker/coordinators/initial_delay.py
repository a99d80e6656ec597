"""The delay before a new group's first generation (KIP-134), so that its members do not cause a rebalance each."""

from __future__ import annotations


class InitialDelay:
    """The delay has steps of `group.initial.rebalance.delay.ms`. When members joined during a step, another follows;
    all steps together last no longer than the rebalance timeout of the group's first member."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._current_ms: int | None = None  # length of the present step; None while there is no delay
        self._left_ms = 0  # that later steps may take
        self._has_grown = False  # a member joined during the present step

    def begin(self, rebalance_timeout_ms: int) -> int:
        """Begin the delay; gives the length of its first step."""
        self._has_grown = False
        self._current_ms = self._step_ms
        self._left_ms = max(rebalance_timeout_ms - self._step_ms, 0)
        return self._step_ms

    def member_joined(self) -> None:
        self._has_grown = True

    def next_step(self) -> int | None:
        """The length of the step that follows the present one; None when the delay is over, or there is none."""
        if self._current_ms is None or not self._has_grown or not self._left_ms:
            return None
        self._has_grown = False
        step_ms, left_ms = self._current_ms, self._left_ms
        self._current_ms = min(self._step_ms, left_ms)
        self._left_ms = max(left_ms - step_ms, 0)
        return self._current_ms

    def end(self) -> None:
        self._current_ms = None
