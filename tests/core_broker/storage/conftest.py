from __future__ import annotations

from collections.abc import Iterator

import pytest

from isthmus.core_broker.storage.real_files import RealFiles


@pytest.fixture
def files() -> Iterator[RealFiles]:
    files = RealFiles(2)
    yield files
    files.close()
