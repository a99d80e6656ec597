"""Applications of other people's making do on one of our brokers and on three as on stock Kafka, the control; the page
of them is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import transactional_copier
from .apps import APPS, App
from .processes import SIDES, starting
from .table import PAGE, app_row


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.mark.soak
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name)
def test_an_app_leaves_what_it_must(app: App, side: str, programs: Path, tmp_path: Path) -> None:
    with starting(side, tmp_path) as brokers:
        app.run(brokers, programs, tmp_path)
    assert app_row(app) in PAGE.read_text(), f"python -m {app_row.__module__} makes the page anew"


def test_each_message_is_copied_once_by_copiers_that_abort_and_are_killed(tmp_path: Path) -> None:
    """What soak runs longer."""
    with starting("isthmus", tmp_path) as brokers:
        transactional_copier.run(brokers, tmp_path, kills=1)
