"""What a test may do to a running topology, on a backend that only remembers what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from isthmus.deploy.topology import Mirror, parse
from isthmus.testing.errors import IsthmusTestingError
from isthmus.testing.keeper import testbed
from isthmus.testing.keeper.parts import Part
from isthmus.testing.keeper.testbed import Testbed
from isthmus.testing.status import MirrorStatus

TEXT = """
name: shops
datacenters: {north: {}, south: {}, office: {}}
mirrors:
  - {name: north-office, source: north, target: office, topics: [a]}
  - {name: south-office, source: south, target: office, topics: [a]}
"""


class Told:
    """A backend."""

    def __init__(self) -> None:
        self.addresses = {"north": "h:1", "south": "h:2", "office": "h:3"}
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def ready(self, part: Part, timeout_s: float) -> None:
        self.calls.append(f"ready {part.process}")

    async def pause(self, part: Part) -> None:
        self.calls.append(f"pause {part.process}")

    async def unpause(self, part: Part) -> None:
        self.calls.append(f"unpause {part.process}")

    async def kill(self, part: Part) -> None:
        self.calls.append(f"kill {part.process}")

    async def restart(self, part: Part) -> None:
        self.calls.append(f"restart {part.process}")

    async def cut(self, link: Mirror) -> None:
        self.calls.append(f"cut {link.name}")

    async def heal(self, link: Mirror) -> None:
        self.calls.append(f"heal {link.name}")

    async def reach(self, part: Part, hears: bool, is_heard: bool) -> None:
        self.calls.append(f"{part.process} hears {hears} is heard {is_heard}")

    async def log(self, part: Part) -> str:
        return f"log of {part.process}"


class Sequence:
    """An observer that gives one list of statuses after the other, and the last for ever."""

    def __init__(self, *rounds: list[MirrorStatus], silent: tuple[str, ...] = ()) -> None:
        self.rounds = list(rounds)
        self.silent = set(silent)

    async def __aenter__(self) -> Sequence:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def status(self) -> list[MirrorStatus]:
        return self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]


def bed() -> tuple[Testbed, list[str]]:
    backend = Told()
    return Testbed(parse(TEXT, "shops.yaml"), backend), backend.calls


def cluster() -> tuple[Testbed, list[str]]:
    backend = Told()
    backend.addresses = {"north": "h:1,h:2,h:3", "office": "h:4"}
    mirror = "{name: north-office, source: north, target: office, topics: [a]}"
    text = f"name: c\ndatacenters: {{north: {{brokers: 3}}, office: {{}}}}\nmirrors: [{mirror}]"
    return Testbed(parse(text, "c.yaml"), backend), backend.calls


def run(*steps: Coroutine[Any, Any, Any]) -> list[Any]:
    async def all_of() -> list[Any]:
        return [await step for step in steps]

    return asyncio.run(all_of())


def refused(step: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(IsthmusTestingError) as caught:
        run(step)
    return str(caught.value)


def status(mirror: str, source: int | None, target: int | None, state: str | None = None) -> MirrorStatus:
    return MirrorStatus(mirror, "a", 0, "x.a", source, target, state)


def test_repair_undoes_every_fault_and_waits() -> None:
    tested, calls = bed()
    run(tested.cut_wan(["south-office"]), tested.pause("north"), tested.kill("north-office"))
    calls.clear()
    run(tested.repair(1.0))
    assert calls[:3] == ["heal south-office", "unpause north-broker", "restart north-office-mirror"]
    assert len([call for call in calls if call.startswith("ready")]) == 5
    calls.clear()
    run(tested.repair(1.0))
    assert [call for call in calls if not call.startswith("ready")] == []


def test_ready_is_asked_of_what_runs_only() -> None:
    tested, calls = bed()
    run(tested.pause("north"), tested.kill("office"))
    calls.clear()
    run(tested.wait_ready(1.0))
    assert calls == ["ready south-broker", "ready north-office-mirror", "ready south-office-mirror"]


def test_a_line_is_cut_once_and_healed_once() -> None:
    tested, calls = bed()
    run(tested.cut_wan([]), tested.cut_wan(["north-office"]), tested.heal_wan(["north-office"]), tested.heal_wan([]))
    assert calls == ["cut north-office", "cut south-office", "heal north-office", "heal south-office"]


def test_a_line_that_could_not_be_healed_is_still_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tested, calls = bed()
    run(tested.cut_wan(["north-office"]))

    async def refuses(backend: Told, link: Mirror) -> None:
        raise IsthmusTestingError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(Told, "heal", refuses)
        assert refused(tested.heal_wan([])) == "not now"
    run(tested.repair(1.0))
    assert calls[1] == "heal north-office"


def test_what_makes_no_sense_is_refused() -> None:
    tested, _ = bed()
    assert refused(tested.unpause("north")) == "north-broker is not paused"
    run(tested.kill("north"))
    assert refused(tested.kill("north")) == "north-broker is killed already: restart brings it back"
    assert refused(tested.pause("north")) == "north-broker is killed: restart it first"
    run(tested.restart("north"), tested.pause("north"), tested.kill("north"))  # a paused one can be killed
    assert refused(tested.unpause("north")) == "north-broker is not paused"


def test_one_broker_of_several_is_hurt_or_all_that_are_left() -> None:
    tested, calls = cluster()
    run(tested.kill("north", 2), tested.pause("north"), tested.kill("north-broker-3"))
    assert calls == ["kill north-broker-2", "pause north-broker-1", "pause north-broker-3", "kill north-broker-3"]
    assert refused(tested.kill("north", 3)) == "north-broker-3 is killed already: restart brings it back"
    calls.clear()
    run(tested.unpause("north"), tested.restart("north"), tested.repair(1.0))
    assert calls[:2] == ["unpause north-broker-1", "restart north-broker-1"]
    assert sorted(calls[1:4]) == [f"restart north-broker-{i}" for i in (1, 2, 3)]
    assert not [call for call in calls[4:] if not call.startswith("ready")]


def test_a_broker_is_cut_off_its_way_and_joined_again() -> None:
    tested, calls = cluster()
    run(tested.cut("north", 2, "in"), tested.cut("north-broker-2", None, "both"), tested.cut("north", 3, "out"))
    assert calls == [
        "north-broker-2 hears False is heard True",
        "north-broker-2 hears False is heard False",
        "north-broker-3 hears True is heard False",
    ]
    calls.clear()
    run(tested.heal("north", 1), tested.heal("north", 3), tested.repair(1.0), tested.heal("north", None))
    assert calls[:2] == ["north-broker-3 hears True is heard True", "north-broker-2 hears True is heard True"]
    assert not [call for call in calls[2:] if "hears" in call]


def test_what_cannot_be_cut_off_is_told_what_can() -> None:
    tested, calls = cluster()
    alone = "is no broker that has others beside it"
    assert refused(tested.cut("office", None, "both")).startswith(f"office-broker {alone}: give its datacenter several")
    assert refused(tested.cut("north-office", None, "both")) == f"north-office-mirror {alone}: cut_wan cuts mirrors off"
    assert refused(tested.cut("north", None, "both")).startswith("'north' is 3 brokers: say north-broker-1 or")
    assert refused(tested.cut("north", 1, "up")) == "there is no way 'up' to cut a broker off: say both, in, out"
    assert not calls


def test_brokers_that_are_left_are_asked_in_place_of_those_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def observer(links: list[Mirror], addresses: dict[str, str]) -> Sequence:
        asked.append(addresses)
        return Sequence([status("north-office", 3, 3)], silent=("north",))

    monkeypatch.setattr(testbed, "Observer", observer)
    monkeypatch.setattr(testbed, "POLL_S", 0)
    tested, _ = cluster()
    run(tested.kill("north", 1), tested.mirror_status([]), tested.pause("north"), tested.mirror_status([]))
    assert asked == [{"north": "h:2,h:3", "office": "h:4"}, {"office": "h:4"}]
    run(tested.unpause("north"), tested.cut("north", 2, "out"), tested.mirror_status([]))
    assert asked.pop() == {"north": "h:3", "office": "h:4"}  # one that is cut off knows no news
    run(tested.pause("north"))
    assert refused(tested.leader("north", "a", 0)) == "no broker of north can tell: unpause, restart or heal one first"


def test_paused_and_killed_brokers_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def observer(links: list[Mirror], addresses: dict[str, str]) -> Sequence:
        asked.append(addresses)
        return Sequence([status("north-office", None, 3)])

    monkeypatch.setattr(testbed, "Observer", observer)
    tested, _ = bed()
    run(tested.pause("north"), tested.kill("south"), tested.kill("north-office"))
    [found] = run(tested.mirror_status([]))
    assert asked == [{"office": "h:3"}]
    assert [(each["source_end"], each["target_end"]) for each in found] == [(None, 3)]


def test_mirrored_means_what_the_sources_held_when_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [(5, 1), (9, 4), (12, 5)]
    observed = [[status("north-office", *ends)] for ends in rounds]
    monkeypatch.setattr(testbed, "Observer", lambda *_: Sequence(*observed))
    monkeypatch.setattr(testbed, "POLL_S", 0)
    tested, _ = bed()
    run(tested.wait_mirrored([], 10.0))  # 5 of the 12 that there are by then


def test_what_is_not_mirrored_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed, "POLL_S", 0)
    tested, _ = bed()
    monkeypatch.setattr(testbed, "Observer", lambda *_: Sequence([status("north-office", 5, 1, "MIRRORING")]))
    words = "not mirrored within 0 s: north-office: x.a-0 has 1 of 5 (MIRRORING)"
    assert refused(tested.wait_mirrored([], 0.0)) == words
    monkeypatch.setattr(testbed, "Observer", lambda *_: Sequence([status("north-office", 5, None)]))
    assert refused(tested.wait_mirrored([], 0.0)) == "not mirrored within 0 s: north-office: x.a-0 does not answer"


def test_a_source_that_does_not_answer_is_not_taken_for_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed, "POLL_S", 0)
    tested, _ = bed()
    monkeypatch.setattr(testbed, "Observer", lambda *_: Sequence([], silent=("south",)))
    assert refused(tested.wait_mirrored([], 0.0)).startswith("the source of south-office does not answer")
    run(tested.wait_mirrored(["north-office"], 0.0))  # the control: the other does
    run(tested.pause("south"))
    assert refused(tested.wait_mirrored([], 600.0)).startswith("the source of south-office does not answer")
    monkeypatch.setattr(testbed, "Observer", lambda *_: Sequence([], silent=("office",)))
    run(tested.unpause("south"), tested.wait_mirrored([], 0.0))


@pytest.mark.parametrize(
    ("source", "target", "lag"), [(5, 3, 2), (5, 5, 0), (3, 5, 0), (None, 5, None), (5, None, None)]
)
def test_lag_is_the_difference_of_the_ends(source: int | None, target: int | None, lag: int | None) -> None:
    assert status("m", source, target).lag_records == lag


def test_logs_are_of_every_part() -> None:
    tested, _ = bed()
    [logs] = run(tested.logs())
    assert logs["north-office-mirror"] == "log of north-office-mirror"
    assert list(logs) == ["north-broker", "south-broker", "office-broker", "north-office-mirror", "south-office-mirror"]
