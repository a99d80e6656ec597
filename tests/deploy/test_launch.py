"""Which ports a topology gets where it leaves them open."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from isthmus.deploy.errors import DeployError
from isthmus.deploy.launch import FREE_PORTS, KEPT, Layout, last_words
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
    monkeypatch.setattr("isthmus.deploy.launch.FREE_PORTS", range(20_000, 20_001))
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


def test_why_a_supervisor_gave_up_is_its_last_error_to_the_end(tmp_path):
    log = tmp_path / "supervisor.log"
    log.write_text("12:00:00 a starting\nerror: first\n12:00:01 a stopped\nerror: of two\nlines\n")
    assert last_words(log) == "of two\nlines"
    log.write_text("12:00:00 a starting\nKilled\n")
    assert last_words(log) == f"the supervisor died, and said at last: Killed (log: {log})"
    log.write_text("")
    assert "said at last: nothing" in last_words(log)
