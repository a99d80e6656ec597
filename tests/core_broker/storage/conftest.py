from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.core_broker.storage.disk.real_files import RealFiles

from .compacting import Bench


@pytest.fixture
def files() -> Iterator[RealFiles]:
    files = RealFiles(2)
    yield files
    files.close()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
