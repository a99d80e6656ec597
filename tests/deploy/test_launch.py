"""Which ports a topology gets where it leaves them open."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path

import pytest

from isthmus.deploy.chosen import CLUSTERS, FREE_PORTS, KEPT, note_made
from isthmus.deploy.errors import DeployError
from isthmus.deploy.launch import Layout, last_words
from isthmus.deploy.nodes import factor_of, lasting_cluster_id, topic_options
from isthmus.deploy.topology import Topology, parse

from .test_topology import FLIGHTS

HOST = "127.0.0.1"


def topology(**listens: str) -> Topology:
    lines = (f'  {name}: {{listen: "{listen}"}}\n' for name, listen in listens.items())
    return parse("name: ports\ndatacenters:\n" + "".join(lines), "t.yaml")


def ports(folder: Path, **listens: str) -> dict[str, int]:
    addresses = Layout.make(topology(**listens), FLIGHTS, folder).addresses
    return {name: int(address.removeprefix(f"{HOST}:")) for name, address in addresses.items()}


def test_free_ports_are_none_that_a_connection_may_take(tmp_path):
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if lowest <= FREE_PORTS[-1]:
        pytest.skip(f"connections are given ports from {lowest} up here, by a setting of this machine")
    found = ports(tmp_path, a=f"{HOST}:0", b=f"{HOST}:0", c=f"{HOST}:0")
    assert len(set(found.values())) == 3
    assert all(port in FREE_PORTS and port < lowest for port in found.values())


def test_a_folder_has_the_same_ports_again_and_another_folder_has_others(tmp_path):
    both = {"a": f"{HOST}:0", "b": f"{HOST}:0"}
    first = ports(tmp_path / "one", **both)
    assert ports(tmp_path / "one", **both) == first
    (tmp_path / "one" / KEPT).unlink()
    assert ports(tmp_path / "one", **both) == first
    assert ports(tmp_path / "two", **both) != first


def test_a_port_that_is_in_use_is_passed_over(tmp_path):
    first = ports(tmp_path, a=f"{HOST}:0")["a"]
    (tmp_path / KEPT).unlink()
    with socket.create_server((HOST, first)):
        assert ports(tmp_path, a=f"{HOST}:0")["a"] != first


def test_what_others_have_or_had_is_chosen_for_nobody_else(tmp_path):
    """None of these listens yet, so that each could be listened on."""
    first, second, third = ports(tmp_path, a=f"{HOST}:0", b=f"{HOST}:0", c=f"{HOST}:0").values()
    (tmp_path / KEPT).write_text(json.dumps({"a": f"{HOST}:{first}"}))
    assert ports(tmp_path, b=f"{HOST}:0", c=f"{HOST}:{second}", a=f"{HOST}:0") == {"a": first, "b": third, "c": second}


def test_a_host_that_is_not_of_this_machine_is_named(tmp_path):
    with pytest.raises(DeployError, match=r"datacenter a: nothing can listen on 192\.0\.2\.1: Cannot assign"):
        Layout.make(topology(a="192.0.2.1:0"), FLIGHTS, tmp_path)


def test_no_free_port_at_all_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.deploy.chosen.FREE_PORTS", range(20_000, 20_001))
    with socket.create_server((HOST, 20_000)), pytest.raises(DeployError, match="from 20000 to 20000 is in use"):
        ports(tmp_path, a=f"{HOST}:0")


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"a": 1}', '{"a": "x"}', '{"a": null}'])
def test_a_damaged_file_of_addresses_is_named_with_the_way_out(tmp_path, damaged):
    """It was a traceback."""
    ports(tmp_path, a=f"{HOST}:0")
    (tmp_path / KEPT).write_text(damaged)
    with pytest.raises(DeployError, match=rf"{KEPT} cannot be read \(.+\): remove it"):
        ports(tmp_path, a=f"{HOST}:0")
    (tmp_path / KEPT).unlink()
    assert ports(tmp_path, a=f"{HOST}:0")


THREE = parse("name: t\ndatacenters: {a: {brokers: 3, racks: [x, y]}, b: {}}", "t.yaml")
ONE = parse("name: t\ndatacenters: {a: {}, b: {}}", "t.yaml")


def options_of(command: tuple[str, ...]) -> dict[str, str]:
    pairs = (each.removeprefix("--set=").partition("=") for each in command if each.startswith("--set="))
    return {name: value for name, _, value in pairs}


def test_several_brokers_are_told_of_each_other_and_of_nobody_else(tmp_path):
    layout = Layout.make(THREE, FLIGHTS, tmp_path)
    specs = layout.brokers("a")
    assert [each.name for each in specs] == ["a-broker-1", "a-broker-2", "a-broker-3"]
    assert [each.facts for each in specs] == [{"datacenter": "a", "node_id": i} for i in (1, 2, 3)]
    options = [options_of(each.command) for each in specs]
    assert [each["node.id"] for each in options] == ["1", "2", "3"]
    assert [each["broker.rack"] for each in options] == ["x", "y", "x"]
    initial, servers = "controller.quorum.initial.controllers", "controller.quorum.bootstrap.servers"
    for name in ("cluster.id", initial, servers, "controller.listener.names"):
        assert len({each[name] for each in options}) == 1
    listens = [tuple(each for each in spec.command if each.startswith("--listen=")) for spec in specs]
    clients = [mine.removeprefix("--listen=PLAINTEXT://") for mine, _ in listens]
    controllers = [theirs.removeprefix("--listen=CONTROLLER://") for _, theirs in listens]
    assert layout.addresses["a"] == ",".join(clients)
    assert options[0][servers] == ",".join(controllers)
    directories = layout.clusters["a"].directories
    voters = ",".join(f"{i}@{at}:{directories[i - 1]}" for i, at in enumerate(controllers, 1))
    assert options[0][initial] == voters and len(set(directories)) == 3
    assert len({*clients, *controllers, layout.addresses["b"]}) == 7
    assert len({each for spec in specs for each in spec.command if each.startswith("--data=")}) == 3


def test_one_broker_is_told_nothing_of_a_cluster(tmp_path):
    [spec] = Layout.make(ONE, FLIGHTS, tmp_path).brokers("a")
    assert spec.name == "a-broker" and f"--data={tmp_path}/data/a" in spec.command
    assert not options_of(spec.command)
    assert sorted(each.name for each in tmp_path.iterdir()) == [KEPT]


def test_a_cluster_has_its_id_and_controllers_again(tmp_path):
    first = Layout.make(THREE, FLIGHTS, tmp_path).clusters["a"]
    Layout.make(ONE, FLIGHTS, tmp_path)  # whose file does not forget it
    assert Layout.make(THREE, FLIGHTS, tmp_path).clusters["a"] == first
    host, _, port = first.controllers[1].rpartition(":")
    with socket.create_server((host, int(port))):
        moved = Layout.make(THREE, FLIGHTS, tmp_path).clusters["a"]
    assert moved.id == first.id and moved.controllers[1] not in first.controllers
    assert [moved.controllers[0], moved.controllers[2]] == [first.controllers[0], first.controllers[2]]


@pytest.mark.parametrize(("made", "then", "place", "was"), [(THREE, ONE, "a/2", 3), (ONE, THREE, "a", 1)])
def test_data_of_another_number_of_brokers_is_not_left_lying(tmp_path, made, then, place, was):
    Layout.make(made, FLIGHTS, tmp_path)
    (tmp_path / "data" / place).mkdir(parents=True)
    (tmp_path / "data" / place / "meta.properties").touch()
    with pytest.raises(
        DeployError, match=rf"datacenter a has the data of {was} broker.*: set brokers: {was}, or remove"
    ):
        Layout.make(then, FLIGHTS, tmp_path)
    Layout.make(made, FLIGHTS, tmp_path)


def test_few_replicas_do_not_wait_for_two_in_sync():
    text = (
        "name: t\ndatacenters: {a: {brokers: 3, topics: {one: {replication_factor: 1}, all: {}}}, b: {topics: {x: {}}}}"
    )
    datacenters = parse(text, "t.yaml").datacenters
    topics = datacenters["a"].topics
    assert topic_options(datacenters["a"], topics["one"]) == {"min.insync.replicas": "1"}
    assert (
        topic_options(datacenters["a"], topics["all"])
        == topic_options(datacenters["b"], datacenters["b"].topics["x"])
        == {}
    )
    assert [factor_of(datacenters["a"], topics[name]) for name in ("one", "all")] == [1, 3]


def test_a_cluster_id_is_one_that_brokers_take():
    ids = [lasting_cluster_id("t", f"dc{i}") for i in range(300)]
    assert len(set(ids)) == 300 and all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in ids)
    assert ids[7] == lasting_cluster_id("t", "dc7")


def test_why_a_supervisor_gave_up_is_its_last_error_to_the_end(tmp_path):
    log = tmp_path / "supervisor.log"
    log.write_text("12:00:00 a starting\nerror: first\n12:00:01 a stopped\nerror: of two\nlines\n")
    assert last_words(log) == "of two\nlines"
    log.write_text("12:00:00 a starting\nKilled\n")
    assert last_words(log) == f"the supervisor died, and said at last: Killed (log: {log})"
    log.write_text("")
    assert "said at last: nothing" in last_words(log)


FIVE = parse("name: t\ndatacenters: {a: {brokers: 5}, b: {}}", "t.yaml")
INITIAL, AUTO_JOIN = "controller.quorum.initial.controllers", "controller.quorum.auto.join.enable"


def has_data(folder, count):
    for i in range(1, count + 1):
        (folder / f"data/a/{i}").mkdir(parents=True)
        (folder / f"data/a/{i}/meta.properties").touch()


def voting(folder, topology=THREE):
    layout = Layout.make(topology, FLIGHTS, folder)
    return layout, [options_of(each.command) for each in layout.brokers("a")]


def test_first_voters_are_named_until_all_have_served(tmp_path):
    layout, before = voting(tmp_path)
    has_data(tmp_path, 2)
    assert [each[INITIAL] for each in voting(tmp_path)[1]] == [each[INITIAL] for each in before]
    note_made(tmp_path, layout.clusters)
    _, after = voting(tmp_path)
    assert not any(INITIAL in each for each in after) and all(each[AUTO_JOIN] == "true" for each in after)
    shutil.rmtree(tmp_path / "data")  # to begin anew
    assert all(INITIAL in each for each in voting(tmp_path)[1])


def test_cluster_that_is_made_may_grow(tmp_path):
    layout, _ = voting(tmp_path)
    has_data(tmp_path, 3)
    with pytest.raises(DeployError, match="has the data of 3 brokers, and the file says 5"):
        voting(tmp_path, FIVE)
    note_made(tmp_path, layout.clusters)
    grown, options = voting(tmp_path, FIVE)
    assert len(options) == 5 and grown.clusters["a"].controllers[:3] == layout.clusters["a"].controllers
    with pytest.raises(DeployError, match="has the data of 5 brokers, and the file says 3"):
        voting(tmp_path)


def test_cluster_of_an_earlier_version_goes_on_with_the_voters_of_its_options(tmp_path):
    layout, _ = voting(tmp_path)
    has_data(tmp_path, 3)
    cluster = layout.clusters["a"]
    (tmp_path / CLUSTERS).write_text(json.dumps({"a": {"id": cluster.id, "controllers": cluster.controllers}}))
    layout, options = voting(tmp_path)
    voters = ",".join(f"{i}@{address}" for i, address in enumerate(cluster.controllers, 1))
    assert all(each["controller.quorum.voters"] == voters for each in options)
    assert not any(INITIAL in each or AUTO_JOIN in each for each in options)
    note_made(tmp_path, layout.clusters)
    assert voting(tmp_path)[1] == options


def test_addresses_of_a_majority_of_controllers_must_stay(tmp_path):
    layout, _ = voting(tmp_path)
    has_data(tmp_path, 3)
    first, second, _ = (each.rpartition(":") for each in layout.clusters["a"].controllers)
    with (
        socket.create_server((first[0], int(first[2]))),
        socket.create_server((second[0], int(second[2]))),
        pytest.raises(DeployError, match=rf"{first[2]} and .*{second[2]}, where its controllers were"),
    ):
        voting(tmp_path)
