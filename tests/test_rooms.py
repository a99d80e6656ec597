"""Every test belongs to a room, and what a room names is there."""

from __future__ import annotations

from itertools import chain

from tests.rooms import ROOMS, ROOT, arguments, scenarios, table

# Run with all tests only: about the whole checkout, or several rooms at once.
OF_NO_ROOM = {
    "tests/simulation",
    "tests/test_architecture.py",
    "tests/test_compiled.py",
    "tests/test_mutants.py",
    "tests/test_readiness.py",
    "tests/test_requirements.py",
    "tests/test_rooms.py",
    "tests/test_running.py",
    "tests/test_runtime.py",
    "tests/test_same_host.py",
    "integration_tests/benchmarks",
    "integration_tests/clients/test_groups.py",
    "integration_tests/containers",
    "integration_tests/others",
    "integration_tests/suites",
    "integration_tests/test_packaging.py",
}


def test_what_a_room_names_is_there() -> None:
    for room in ROOMS.values():
        for path in chain(room.unit, room.integration):
            assert (ROOT / path).exists(), path
        assert set(room.scenarios) <= set(scenarios())


def test_no_test_is_without_a_room() -> None:
    named = {*OF_NO_ROOM, *chain.from_iterable((*room.unit, *room.integration) for room in ROOMS.values())}
    for top in ("tests", "integration_tests"):
        for path in sorted((ROOT / top).rglob("test_*.py")):
            parts = path.relative_to(ROOT).parts
            prefixes = {"/".join(parts[: end + 1]) for end in range(1, len(parts))}
            assert prefixes & named or parts[:2] == ("tests", "core_broker"), path
    assert {name for room in ROOMS.values() for name in room.scenarios} == set(scenarios())


def test_the_readme_has_the_table() -> None:
    readme = (ROOT / "tests/README.md").read_text()
    assert readme.partition("<!-- rooms -->\n")[2].partition("\n<!-- end")[0].splitlines() == table()


def test_a_room_s_simulation_has_its_scenarios_and_their_planted_bugs() -> None:
    chosen = arguments("mirror", "simulation")
    assert any("[wire-mirror]" in each for each in chosen)
    assert any("[append-without-expected-offset]" in each for each in chosen)
    assert not any("[streams]" in each for each in chosen)
    assert arguments("protocol", "simulation") == []
