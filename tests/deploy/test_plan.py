"""What is to be done to processes so that they are as the file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.deploy.chosen import Cluster
from isthmus.deploy.launch import Layout
from isthmus.deploy.plan import ProcessStep, plan_processes
from isthmus.deploy.supervisor import ProcessSpec
from isthmus.deploy.topology import parse

TEXT = """\
name: t
datacenters:
  one: {options: {num.partitions: 2, log.retention.ms: 5}, topics: {a: {}}}
  three: {brokers: 3, racks: [r]}
mirrors:
  - {name: m, source: one, target: three, topics: [a]}
workers:
  - {name: w, app: "w.py:app", datacenter: three}
"""
COPIES = "what it has copied stays"
CLUSTER = Cluster("id", ["h:11", "h:12", "h:13"], ["a", "b", "c"])


def processes(text: str = TEXT, folder: Path = Path("/gone"), made: bool = True) -> list[ProcessSpec]:
    topology = parse(text, "t.yaml")
    addresses = {name: ",".join(f"h:{i}" for i in range(dc.brokers)) for name, dc in topology.datacenters.items()}
    cluster = Cluster(CLUSTER.id, CLUSTER.controllers, CLUSTER.directories, made)
    return Layout(topology, folder / "t.yaml", folder, addresses, {"three": cluster}).processes()


def planned(
    new: list[ProcessSpec], old: list[ProcessSpec] | None = None
) -> tuple[list[tuple[str, str, str]], list[str]]:
    running = {each.name: each for each in (processes() if old is None else old)}
    steps, _, refused = plan_processes(running, new)
    return [(each.verb, each.spec.name, "; ".join(each.details)) for each in steps], refused


def test_what_is_the_same_goes_on():
    assert plan_processes({each.name: each for each in processes()}, processes()) == ([], [], [])


@pytest.mark.parametrize(
    ("old", "new", "step"),
    [
        ("num.partitions: 2", "num.partitions: 3", ("restart", "one-broker", "num.partitions 2 -> 3")),
        ("num.partitions: 2, ", "", ("restart", "one-broker", "num.partitions 2 -> the default")),
        ("{num.partitions", "{durability: fsync, num.partitions",
         ("restart", "one-broker", "durability the default -> fsync")),
        ("topics: [a]", "topics: [a, b]", ("restart", "m-mirror", "topics a -> a,b")),
        ("topics: [a]}", "topics: [a], rename: 'x.{topic}'}",
         ("restart", "m-mirror", "rename {source}.{topic} -> x.{topic}")),
        ("w.py:app", "v.py:app", ("restart", "w-worker", "app /gone/w.py:app -> /gone/v.py:app")),
        ("workers:", "  - {name: n, source: three, target: one, topics: [b]}\nworkers:", ("start", "n-mirror", "")),
        ("  - {name: m, source: one, target: three, topics: [a]}", "  []", ("stop", "m-mirror", COPIES)),
    ],
)  # fmt: skip
def test_one_difference_is_one_step(old: str, new: str, step: tuple[str, str, str]):
    assert old in TEXT
    assert planned(processes(TEXT.replace(old, new))) == ([step], [])


def test_brokers_of_one_datacenter_are_each_a_step():
    steps, _ = planned(processes(TEXT.replace("racks: [r]", "racks: [r, s]")))
    assert steps == [("restart", "three-broker-2", "broker.rack r -> s")]
    steps, _ = planned(processes(TEXT.replace("racks: [r]", "racks: [r], options: {num.partitions: 9}")))
    assert [name for _, name, _ in steps] == ["three-broker-1", "three-broker-2", "three-broker-3"]


def test_a_cluster_that_is_made_is_told_at_the_next_start():
    running = {each.name: each for each in processes(made=False)}
    steps, for_later, refused = plan_processes(running, processes(made=True))
    assert (steps, refused) == ([], [])
    assert [each.name for each in for_later] == ["three-broker-1", "three-broker-2", "three-broker-3"]


def test_what_ends_ends_in_the_other_order_than_it_began():
    steps, _ = planned(processes("name: t\ndatacenters: {one: {options: {num.partitions: 2, log.retention.ms: 5}}}\n"))
    assert steps == [
        ("stop", "w-worker", "the tables and offsets of its app stay"), ("stop", "m-mirror", COPIES),
        *(("stop", f"three-broker-{i}", f"its records stay in /gone/data/three/{i}") for i in (3, 2, 1)),
    ]  # fmt: skip


def test_an_app_whose_file_has_changed_is_restarted(tmp_path: Path):
    (tmp_path / "w.py").write_text("one")
    before = processes(folder=tmp_path)
    assert planned(processes(folder=tmp_path), before) == ([], [])
    (tmp_path / "w.py").write_text("two")
    step = ("restart", "w-worker", "the app's file has changed")
    assert planned(processes(folder=tmp_path), before) == ([step], [])
    (tmp_path / "w.py").unlink()
    assert planned(processes(folder=tmp_path), before) == ([step], [])


def test_where_a_datacenter_listens_and_what_a_link_reads_stay():
    _, refused = planned(processes(TEXT.replace("source: one, target: three", "source: three, target: one")))
    assert len(refused) == 1 and refused[0].startswith("m-mirror: the source of a link stays")
    moved = [
        ProcessSpec(each.name, tuple(part.replace("h:0", "h:9") for part in each.command), each.kind, facts=each.facts)
        for each in processes()
    ]
    _, refused = planned(moved)
    assert [each.partition(": ")[0] for each in refused] == ["one-broker", "three-broker-1"]
    assert all("`isthmus down`" in each for each in refused)


def test_a_step_is_told_of_what_it_is_to_be():
    [spec, *others] = processes()
    steps, _, _ = plan_processes({each.name: each for each in others}, [spec, *others])
    assert steps == [ProcessStep("start", spec)]
