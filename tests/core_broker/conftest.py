from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Syncs are nothing: for tests of what files hold, which a crash of this machine would not be told of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        patch.setattr("os.fdatasync", lambda fd: None)
        yield
