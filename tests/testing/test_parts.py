"""Parts are found by the names of the topology; what is not there is named with what is."""

from __future__ import annotations

import pytest

from isthmus.deploy.topology import parse
from isthmus.testing.errors import IsthmusTestingError
from isthmus.testing.keeper.parts import Parts

TEXT = """
name: shops
datacenters: {north: {}, south: {}, office: {}}
mirrors:
  - {name: north-office, source: north, target: office, topics: [a]}
  - {name: south, source: south, target: office, topics: [a]}
workers:
  - {name: totals, app: "totals.py:app", datacenter: office}
"""
PARTS = Parts(parse(TEXT, "shops.yaml"))


@pytest.mark.parametrize(
    ("name", "process"),
    [
        ("north", "north-broker"),
        ("north-broker", "north-broker"),
        ("north-office", "north-office-mirror"),
        ("totals", "totals-worker"),
        ("south-broker", "south-broker"),
        ("south-mirror", "south-mirror"),
    ],
)
def test_a_part_is_found_by_its_name_and_by_its_process(name: str, process: str) -> None:
    assert PARTS.one(name).process == process


def test_a_name_of_two_parts_is_refused() -> None:
    with pytest.raises(
        IsthmusTestingError, match="'south' is more than one part of shops: say south-broker or south-mi"
    ):
        PARTS.find("south")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nort", "no part of shops is called 'nort': did you mean 'north'?"),
        ("xyz", "no part of shops is called 'xyz': there are north, south, office, north-office, south, totals"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(name: str, words: str) -> None:
    with pytest.raises(IsthmusTestingError) as caught:
        PARTS.find(name)
    assert str(caught.value) == words


def test_mirrors_are_all_unless_some_are_named() -> None:
    assert [link.name for link in PARTS.mirrors([])] == ["north-office", "south"]
    assert [link.name for link in PARTS.mirrors(["south"])] == ["south"]
    with pytest.raises(IsthmusTestingError, match="no mirror is called 'north': did you mean 'south'"):
        PARTS.mirrors(["north"])


def test_a_topology_without_mirrors_has_no_wan() -> None:
    with pytest.raises(IsthmusTestingError, match="the topology one has no mirrors"):
        Parts(parse("name: one\ndatacenters: {a: {}}", "one.yaml")).mirrors([])


SEVERAL = Parts(parse("name: c\ndatacenters: {a: {brokers: 3}, b: {}}", "c.yaml"))


def test_a_datacenters_name_is_all_of_its_brokers_and_each_has_one() -> None:
    every = ["a-broker-1", "a-broker-2", "a-broker-3"]
    assert [part.process for part in SEVERAL.find("a")] == [part.process for part in SEVERAL.find("a-broker")] == every
    assert SEVERAL.one("a-broker-2") == SEVERAL.one("a", 2) == SEVERAL.broker("a", 2)
    assert SEVERAL.one("b").process == SEVERAL.broker("b", 7).process == "b-broker"  # the only one, whatever its id
    with pytest.raises(IsthmusTestingError, match="'a' is 3 brokers: say a-broker-1 or a-broker-2 or a-broker-3"):
        SEVERAL.one("a")
    with pytest.raises(IsthmusTestingError, match="datacenter a has no broker 4: there are 1, 2, 3"):
        SEVERAL.find("a", 4)


def test_brokers_have_their_ids_also_one_that_says_its_own() -> None:
    parts = Parts(parse("name: c\ndatacenters: {a: {brokers: 3}, b: {}, d: {options: {node.id: 7}}}", "c.yaml"))
    assert [parts.broker_ids(name) for name in "abd"] == [[1, 2, 3], [1], [7]]
    with pytest.raises(IsthmusTestingError, match="'x'"):
        parts.broker_ids("x")
