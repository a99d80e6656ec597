"""What the tests of containers share: an engine, and the image of the source that runs here.

All tests of this folder have the mark `containers`, which plain `pytest` leaves out; `make test-containers` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration_tests.containers.containers import LABEL, BrokerContainer
from isthmus.deploy import engine
from isthmus.deploy.engine import IMAGE, EngineError, EngineVersion
from isthmus.deploy.image.build import Choice, build, is_current

HERE = Path(__file__).parent
ContainerMaker = Callable[..., BrokerContainer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def docker_engine() -> EngineVersion:
    """The engine; without one the test is skipped with the line that says why."""
    try:
        return engine.require()
    except EngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def isthmus_image(docker_engine: EngineVersion) -> str:
    """The image's tag; it is built anew where it is not of this source."""
    if not is_current(IMAGE):
        build(Choice(), print, lambda line: None)
    return IMAGE


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays(docker_engine: EngineVersion) -> Iterator[None]:
    yield
    left = engine.docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split()
    volumes = engine.docker("volume", "ls", "--quiet", "--filter", f"label={LABEL}").split()
    assert (left, volumes) == ([], []), "tests left containers or volumes behind"


@pytest.fixture
def make_container(isthmus_image: str) -> Iterator[ContainerMaker]:
    """`make_container("--set=name=value")` starts a broker as the documentation does: read-only, with a volume."""
    with ExitStack() as started:

        def make(*arguments: str, options: Sequence[str] = ()) -> BrokerContainer:
            return started.enter_context(BrokerContainer(isthmus_image, arguments, options=options))

        yield make


@pytest.fixture(scope="module")
def broker_container(isthmus_image: str) -> Iterator[BrokerContainer]:
    """One broker for a test module, ready; do not stop it."""
    with BrokerContainer(isthmus_image) as broker:
        broker.until_ready()
        yield broker
