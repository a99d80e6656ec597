"""All scenarios: those of the two brokers that everybody shares, and those of pairs with options of their own."""

from __future__ import annotations

from . import test_group_limits, test_offline_partitions, test_restart, test_storage_errors
from .peer import Scenario
from .scenarios import SCENARIOS

ALL: list[Scenario] = [
    *SCENARIOS,
    *test_restart.SCENARIOS,
    *test_group_limits.SCENARIOS,
    *test_storage_errors.SCENARIOS,
    *test_offline_partitions.SCENARIOS,
]
