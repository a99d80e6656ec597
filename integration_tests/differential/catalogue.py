"""All scenarios: those of the two brokers that everybody shares, and those of pairs with options of their own."""

from __future__ import annotations

from . import (
    test_group_limits,
    test_offline_partitions,
    test_restart,
    test_storage_errors,
    test_transaction_limits,
    test_transaction_versions,
    test_used_up_epochs,
)
from .peer import Scenario
from .scenarios import SCENARIOS

ALL: list[Scenario] = [
    *SCENARIOS,
    *test_restart.SCENARIOS,
    *test_group_limits.SCENARIOS,
    *test_transaction_limits.SCENARIOS,
    *test_transaction_versions.SCENARIOS,
    *test_used_up_epochs.SCENARIOS,
    *test_storage_errors.SCENARIOS,
    *test_offline_partitions.SCENARIOS,
]
