"""The pytest plugin on small suites, with stand-ins for what takes seconds to start: scopes, markers, faults undone,
and that it costs nothing where nobody asks for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Self

import pytest

from isthmus.testing import IsthmusContainer, IsthmusTopology, choice, container, topology
from isthmus.testing.errors import IsthmusTestingError


class Suite:
    """A folder with tests, which is its own root, and pytest run in it. notes: what was done to stand-ins."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.notes: list[str] = []
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, text: str) -> Suite:
        (self.pytester.path / name).write_text(text)
        return self

    def run(self, *arguments: str) -> str:
        """What pytest said."""
        done = self.pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "isthmus.testing.plugin", *arguments)
        return done.stdout.str() + done.stderr.str()


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A suite whose fixtures are stand-ins, on the local supervisor."""
    made = Suite(pytester)
    monkeypatch.setenv("ISTHMUS_TESTING", "local")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins take longer than these suites
    for module, name in ((container, "IsthmusContainer"), (topology, "IsthmusTopology")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: StandIn(made.notes, *args, **kwargs))
    return made


class StandIn:
    """In place of what takes seconds to start."""

    def __init__(self, notes: list[str], *args: Any, **kwargs: Any) -> None:
        self.notes = notes
        self.changed = False
        self.what = " ".join([*(str(getattr(each, "name", each)) for each in args), *map(str, kwargs.values())])

    def __enter__(self) -> Self:
        if "broken" in self.what:
            raise IsthmusTestingError("a port is taken: stop what uses it")
        self.note("start")
        return self

    def __exit__(self, *_: object) -> None:
        self.note("stop")

    def pause(self) -> None:
        self.changed = True

    def repair(self) -> None:
        self.note("repair")
        self.changed = False

    def logs(self) -> str:
        return "\n".join(f"line {number}" for number in range(40))

    def note(self, what: str) -> None:
        self.notes.append(f"{what} {self.what}".strip())


TWO_TESTS = """
def test_a(isthmus_container): isthmus_container.pause()
def test_b(isthmus_container): pass
"""


def test_a_module_shares_one_and_faults_are_undone_between_tests(suite: Suite) -> None:
    suite.write("test_x.py", TWO_TESTS).write("test_y.py", TWO_TESTS)
    assert "4 passed" in suite.run()
    assert suite.notes == ["start", "repair", "stop"] * 2


def test_scope_function_gives_each_test_its_own(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\nisthmus_scope = function\n").write("test_x.py", TWO_TESTS)
    assert "2 passed" in suite.run()
    assert [note for note in suite.notes if note != "repair"] == ["start", "stop"] * 2


def test_scope_session_gives_all_tests_one(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\nisthmus_scope = session\n").write("test_x.py", TWO_TESTS)
    assert "4 passed" in suite.write("test_y.py", TWO_TESTS).run()
    assert suite.notes == ["start", "repair", "repair", "stop"]


def test_a_scope_that_is_none_is_refused(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\nisthmus_scope = package\n").write("test_x.py", TWO_TESTS)
    said = suite.run()
    assert said.strip() == "ERROR: isthmus_scope = package: is none of function, class, module, session"


def test_a_module_wide_fixture_of_the_user_may_ask_for_it(suite: Suite) -> None:
    suite.write(
        "test_x.py",
        "import pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def app(isthmus_container): return isthmus_container\n"
        "def test_a(app): app.pause()\n"
        "def test_b(app): assert not app.changed\n",
    )
    assert "2 passed" in suite.run()


MARKED = """
import pytest
@pytest.mark.isthmus_topology("one.yaml")
def test_a(isthmus_topology): assert isthmus_topology.what == "one.yaml"
@pytest.mark.isthmus_topology("two.yaml")
def test_b(isthmus_topology): assert isthmus_topology.what == "two.yaml"
@pytest.mark.isthmus_topology("one.yaml")
def test_c(isthmus_topology): assert isthmus_topology.what == "one.yaml"
def test_d(isthmus_topology): assert isthmus_topology.what == "default.yaml"
@pytest.mark.isthmus_topology("name: text\\ndatacenters: {a: {}}")
def test_e(isthmus_topology): assert isthmus_topology.what.startswith("name: text")
"""


def test_a_marker_names_the_topology_and_equal_ones_are_started_once(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\nisthmus_topology = default.yaml\n").write("test_x.py", MARKED)
    said = suite.run("-v")
    assert "5 passed" in said
    assert "test_x.py::test_a PASSED" in said  # no parameter in its name
    assert suite.notes.count("start one.yaml") == 1


def test_a_marker_gives_the_container_its_options(suite: Suite) -> None:
    suite.write(
        "test_x.py",
        "import pytest\n"
        "pytestmark = pytest.mark.isthmus_container(options={'num.partitions': 3})\n"
        "def test_a(isthmus_container): assert isthmus_container.what == \"{'num.partitions': 3}\"\n"
        "def test_b(isthmus_container): pass\n",
    )
    assert "2 passed" in suite.run()
    assert [note.partition(" ")[0] for note in suite.notes] == ["start", "stop"]


def test_a_test_may_have_both_markers_and_those_of_its_class_count(suite: Suite) -> None:
    suite.write(
        "test_x.py",
        "import pytest\n"
        "@pytest.mark.isthmus_topology('one.yaml')\n"
        "class TestAll:\n"
        "    @pytest.mark.isthmus_container(port=1)\n"
        "    @pytest.mark.parametrize('n', range(2))\n"
        "    def test_a(self, isthmus_container, isthmus_topology, n):\n"
        "        assert (isthmus_container.what, isthmus_topology.what) == ('1', 'one.yaml')\n",
    )
    said = suite.run("-v")
    assert "2 passed" in said
    assert "::test_a[1] PASSED" in said
    assert sorted(suite.notes) == ["start 1", "start one.yaml", "stop 1", "stop one.yaml"]


def test_no_topology_named_is_an_error_with_both_ways_to_name_one(suite: Suite) -> None:
    said = suite.write("test_x.py", "def test_a(isthmus_topology): pass\n").run()
    assert "1 error" in said
    assert "isthmus_topology needs a topology: mark the test, @pytest.mark.isthmus_topology(" in said
    assert "isthmus_topology = topology.yaml" in said


def test_what_does_not_start_is_an_error_of_the_tests_that_need_it(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\nisthmus_topology = broken.yaml\n")
    said = suite.write("test_x.py", "def test_a(isthmus_topology): pass\ndef test_b(): pass\n").run()
    assert "1 passed, 1 error" in said
    assert "a port is taken: stop what uses it" in said
    assert "plugin.py" not in said  # where in here it was found helps nobody


WRONG = """
import pytest

@pytest.mark.isthmus_container(option={"num.partitions": 3})
def test_a(isthmus_container): pass
@pytest.mark.isthmus_topology("one.yaml", fixed=True)
def test_b(isthmus_topology): pass
@pytest.mark.isthmus_topology()
def test_c(isthmus_topology): pass
@pytest.mark.isthmus_topology("not-there.yaml")
def test_d(isthmus_topology): pass
"""


def test_a_marker_that_is_wrong_is_a_line(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "IsthmusContainer", IsthmusContainer)
    monkeypatch.setattr(topology, "IsthmusTopology", IsthmusTopology)
    said = suite.write("test_x.py", WRONG).run()
    assert "4 errors" in said and "Error: " not in said and "plugin.py" not in said
    assert "@pytest.mark.isthmus_container: got an unexpected keyword argument 'option'" in said
    assert "@pytest.mark.isthmus_topology: got an unexpected keyword argument 'fixed'" in said
    assert 'write @pytest.mark.isthmus_topology("topology.yaml")' in said
    assert "not-there.yaml: cannot be read: No such file or directory" in said


def test_a_failed_test_comes_with_the_ends_of_the_logs(suite: Suite) -> None:
    said = suite.write("test_x.py", "def test_a(isthmus_container): assert 0\n").run()
    assert "Isthmus logs (isthmus_container)" in said
    assert "line 39" in said
    assert "line 24\n" not in said


# --- Where and why --------------------------------------------------------------------------------------------------


def test_the_header_says_where_and_why(suite: Suite) -> None:
    assert "isthmus: local: ISTHMUS_TESTING=local" in suite.write("test_x.py", TWO_TESTS).run()


def test_what_was_found_is_said_once_it_matters(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ISTHMUS_TESTING")
    monkeypatch.setattr(choice, "_found", lambda: choice.Choice(choice.Backend.LOCAL, "no Docker engine runs"))
    assert suite.write("test_x.py", TWO_TESTS).run().count("isthmus: local: no Docker engine runs") == 1
    suite.write("pytest.ini", "[pytest]\nisthmus_topology = topology.yaml\n")
    assert suite.run().count("isthmus: local: no Docker engine runs") == 1
    monkeypatch.setattr(choice, "_found", lambda: pytest.fail("it was asked for"))
    suite.write("pytest.ini", "[pytest]\n").write("test_x.py", "def test_a(): pass\n")
    assert "isthmus: " not in suite.run()


def test_under_xdist_it_is_said_once_at_the_end(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(
        "test_x.py", "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_a(isthmus_container, n): 0\n"
    )
    suite.write("conftest.py", CONFTEST)
    for of, name in (
        (choice, "_found"),
        (container, "IsthmusContainer"),
    ):  # replaced in this process
        monkeypatch.setattr(of, name, getattr(of, name))
    monkeypatch.delenv("ISTHMUS_TESTING")
    assert suite.run("-p", "xdist", "-n", "2").count("isthmus: local: it is so") == 1


CONFTEST = """
from isthmus.testing import choice, container
class Broker:
    changed = False
    def __enter__(self): return self
    def __exit__(self, *_): pass
container.IsthmusContainer = Broker
choice._found = lambda: choice.Choice(choice.Backend.LOCAL, "it is so")
"""


def test_a_wrong_value_is_said_in_one_line_and_fails_only_who_asks(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_TESTING", "dokcer")
    monkeypatch.setattr(container, "IsthmusContainer", lambda: choice.choose())
    said = suite.write("test_x.py", "def test_a(isthmus_container): pass\ndef test_b(): pass\n").run()
    assert "1 passed, 1 error" in said
    assert "isthmus: ISTHMUS_TESTING=dokcer is neither docker nor local" in said


QUIET = """
import sys
def test_a():
    names = [name for name in sys.modules if name.split(".")[0] in ("isthmus", "docker", "testcontainers", "pydantic")]
    assert sorted(names) == ["isthmus", "isthmus.testing", "isthmus.testing.plugin"]
"""


def test_a_run_that_asks_for_nothing_loads_nothing_and_says_nothing(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write("test_x.py", QUIET)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_x.py"]
    monkeypatch.delenv("ISTHMUS_TESTING")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")  # as everywhere: the plugin is found by its entry point
    done = subprocess.run(command, cwd=suite.pytester.path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout
    assert "isthmus-" in done.stdout  # among the plugins
    assert "isthmus: " not in done.stdout


def test_markers_and_options_are_known_to_pytest(suite: Suite) -> None:
    suite.write("pytest.ini", "[pytest]\naddopts = --strict-markers --strict-config\nisthmus_scope = class\n")
    assert "2 passed" in suite.write("test_x.py", TWO_TESTS).run()
    assert "@pytest.mark.isthmus_topology(file): " in suite.run("--markers")
