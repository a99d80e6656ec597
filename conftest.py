"""Time limits: every test has `timeout` of pyproject.toml, a soak test a longer one."""

from __future__ import annotations

import pytest

SOAK_LIMIT_S = 4 * 60 * 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SOAK_LIMIT_S))
