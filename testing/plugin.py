"""The pytest plugin: fixtures `isthmus_container` and `isthmus_topology`. Loaded by name in every run of pytest.

So it imports nothing of Isthmus before a test asks for a fixture, and says nothing in runs that ask for none.

* `isthmus_topology` takes its file from the marker `isthmus_topology("file.yaml")` on a test, class or module, or else
  from the option `isthmus_topology` of pytest's configuration. Relative paths begin at the file of the marked test,
  or at the folder of the configuration. The marker takes the file's text, too.
* `isthmus_container` takes IsthmusContainer's arguments from the marker `isthmus_container(options={…})`.

Both live as long as the option `isthmus_scope` says: `module` (the default: what takes seconds to start is started
once for each test file), `session`, `class`, or `function`. Faults that a test left are undone after it, so that the
next one finds everything running; the data of earlier tests stays, so use topics of your own in each.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .container import IsthmusContainer
    from .topology import IsthmusTopology

CONTAINER, TOPOLOGY, SCOPE = "isthmus_container", "isthmus_topology", "isthmus_scope"
SCOPES = ("function", "class", "module", "session")
LOG_LINES = 15  # of each part, shown with a test that failed
_OUTPUT = "isthmus"  # of a process of pytest-xdist
_running = pytest.StashKey[dict[str, Any]]()  # what the fixtures have started, by fixture
_said = pytest.StashKey[list[str]]()  # by processes of pytest-xdist


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(TOPOLOGY, "topology file of the fixture isthmus_topology, from the folder of this file", default="")
    parser.addini(SCOPE, f"how long Isthmus fixtures live: {', '.join(SCOPES)}", default="module")


def pytest_configure(config: pytest.Config) -> None:
    if (scope := config.getini(SCOPE)) not in SCOPES:
        raise pytest.UsageError(f"{SCOPE} = {scope}: is none of {', '.join(SCOPES)}")
    config.stash[_running] = {}
    config.addinivalue_line("markers", f"{TOPOLOGY}(file): topology file, or its text, of the fixture {TOPOLOGY}")
    config.addinivalue_line("markers", f"{CONTAINER}(**arguments): IsthmusContainer's, of the fixture {CONTAINER}")


# --- Where it runs, and why -----------------------------------------------------------------------------------------


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Where the choice was made in words; else the line comes once it is known that it matters, after collection."""
    return _header() if os.environ.get("ISTHMUS_TESTING") or config.getini(TOPOLOGY) else []


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    return _header() if any(map(_asks, items)) and not pytest_report_header(config) else []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist collects and has no terminal: what it found is said by the one that started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None and any(map(_asks, session.items)):
        output[_OUTPUT] = _header()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_said] = getattr(node, "workeroutput", {}).get(_OUTPUT) or node.config.stash.get(_said, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not pytest_report_header(config):
        for line in config.stash.get(_said, []):
            terminalreporter.write_line(line)


def _header() -> list[str]:
    from .choice import choose
    from .errors import IsthmusTestingError

    try:
        return [f"isthmus: {choose()}"]
    except IsthmusTestingError as error:
        return [f"isthmus: {error}"]  # an error of the tests that use the fixtures, not of the others


def _asks(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return CONTAINER in names or TOPOLOGY in names


# --- Fixtures -------------------------------------------------------------------------------------------------------


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    return config.getini(SCOPE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marker becomes the hidden parameter of its fixture, so that tests with equal markers share what is started."""
    for fixture in (CONTAINER, TOPOLOGY):
        marker = metafunc.definition.get_closest_marker(fixture)
        if marker and fixture in metafunc.fixturenames:
            where = str(metafunc.definition.path.parent)
            parameter = (marker.args, tuple(sorted(marker.kwargs.items(), key=lambda pair: pair[0])), where)
            metafunc.parametrize(fixture, [_Parameter(*parameter)], indirect=True, ids=[pytest.HIDDEN_PARAM])


class _Parameter:
    """A marker's arguments, and the folder of the test. Equal ones are one parameter for pytest."""

    def __init__(self, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...], folder: str) -> None:
        self.args, self.kwargs, self.folder = args, dict(kwargs), folder
        self._key = repr((args, kwargs, folder))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Parameter) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@pytest.fixture(scope=_scope)
def isthmus_container(request: pytest.FixtureRequest) -> Iterator[IsthmusContainer]:
    """A started IsthmusContainer: one broker; `.bootstrap` is its address."""
    from . import IsthmusContainer

    parameter: _Parameter | None = getattr(request, "param", None)
    args, kwargs = (parameter.args, parameter.kwargs) if parameter else ((), {})
    with _in_a_line():
        made = _made(CONTAINER, IsthmusContainer, *args, **kwargs)
    yield from _kept(request, made)


@pytest.fixture(scope=_scope)
def isthmus_topology(request: pytest.FixtureRequest) -> Iterator[IsthmusTopology]:
    """A started IsthmusTopology: the datacenters, mirrors and workers of a topology file."""
    from . import IsthmusTopology

    parameter: _Parameter | None = getattr(request, "param", None)
    config = request.config
    if parameter:
        if len(parameter.args) != 1:
            pytest.fail(f'write @pytest.mark.{TOPOLOGY}("topology.yaml")', pytrace=False)
        [file], folder, kwargs = parameter.args, Path(parameter.folder), parameter.kwargs
    elif file := config.getini(TOPOLOGY):
        folder, kwargs = config.inipath.parent if config.inipath else config.rootpath, {}
    else:
        pytest.fail(
            f'{TOPOLOGY} needs a topology: mark the test, @pytest.mark.{TOPOLOGY}("topology.yaml"), or set '
            f"{TOPOLOGY} = topology.yaml in pytest's configuration",
            pytrace=False,
        )
    with _in_a_line():
        made = _made(TOPOLOGY, IsthmusTopology, _located(file, folder), **kwargs)
    yield from _kept(request, made)


def _located(file: str | Path, folder: Path) -> str | Path:
    return file if isinstance(file, str) and "\n" in file else folder / file


def _made(fixture: str, kind: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        inspect.signature(kind.__init__).bind(None, *args, **kwargs)
    except TypeError as error:
        pytest.fail(f"@pytest.mark.{fixture}: {error}", pytrace=False)
    return kind(*args, **kwargs)


@contextlib.contextmanager
def _in_a_line() -> Iterator[None]:
    """What a user got wrong, or a machine lacks, is said without where in here it was found."""
    from ..deploy.errors import DeployError

    try:
        yield
    except DeployError as error:
        pytest.fail(str(error), pytrace=False)


def _kept(request: pytest.FixtureRequest, made: Any) -> Iterator[Any]:
    running = request.config.stash[_running]
    with contextlib.ExitStack() as stack:
        with _in_a_line():
            stack.enter_context(made)
        running[request.fixturename or ""] = made
        try:
            yield made
        finally:
            running.pop(request.fixturename or "", None)


# --- After each test ------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failed test, the end of each part's log."""
    report = yield
    if report.failed:
        for name, made in item.config.stash[_running].items():
            if name in getattr(item, "fixturenames", ()):
                report.sections.append((f"Isthmus logs ({name})", _ends_of_logs(made)))
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Undo the faults that a test left, in what outlives it."""
    for made in item.config.stash[_running].values():
        if made.changed:
            made.repair()


def _ends_of_logs(made: Any) -> str:
    try:
        logs = made.all_logs() if hasattr(made, "all_logs") else {"broker": made.logs()}
    except Exception as error:  # such as of an engine that is gone: the test's own failure is what counts
        return str(error)
    return "\n".join(f"--- {name}\n" + "\n".join(log.splitlines()[-LOG_LINES:]) for name, log in logs.items())
