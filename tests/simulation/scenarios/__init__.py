"""Scenarios by name: `a-name` is the coroutine function `a_name` of the module `a_name` here.

Each takes a `Simulation` and raises when a check fails.
"""

from __future__ import annotations

import importlib

from ..runner import Scenario

SCENARIOS = (
    "broker-start",
    "cluster",
    "cold-fetches",
    "compaction",
    "consumer-groups",
    "cuts",
    "data-directory",
    "disk-faults",
    "diverged",
    "echo",
    "fetch-sessions",
    "groups",
    "log",
    "mirror",
    "offset-expiry",
    "producers",
    "quorum",
    "retention",
    "stream-cluster",
    "stream-growth",
    "stream-pipelines",
    "streams",
    "transactions",
    "wire-mirror",
    "wire-producers",
    "zombies",
)


def load(name: str) -> Scenario:
    python_name = name.replace("-", "_")
    scenario: Scenario = getattr(importlib.import_module(f".{python_name}", __package__), python_name)
    return scenario
