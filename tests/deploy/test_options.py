"""Options that are looked at before anything is started: those that fit no other part of the topology, too."""

from __future__ import annotations

import pytest

from isthmus.deploy.compose import SET_HERE
from isthmus.deploy.errors import TopologyError
from isthmus.deploy.options import SET_BY_TOPOLOGY, check_options
from isthmus.deploy.topology import parse

BOTH = """\
name: t
datacenters:
  a: {listen: "127.0.0.1:1", options: {metrics.listener: "127.0.0.1:2"}}
  b:
    listen: "127.0.0.1:3"
    options: {metrics.listener: "127.0.0.1:%d"}
"""
EVERYWHERE = 'name: t\ndatacenters: {a: {listen: "0.0.0.0:1"%s}}\n'


@pytest.mark.parametrize(("port", "other"), [(1, "a (listen)"), (2, "a (metrics.listener)"), (3, "b (listen)")])
def test_two_of_one_machine_do_not_share_an_address(port: int, other: str) -> None:
    text = BOTH % port
    with pytest.raises(TopologyError) as caught:
        check_options(parse(text, "t.yaml"), text, "t.yaml")
    said = f"t.yaml:6: datacenters.b.options.metrics.listener: 127.0.0.1:{port} is the address of {other} already"
    assert said in str(caught.value).splitlines()
    check_options(parse(text, "t.yaml"), text, "t.yaml", SET_HERE)  # in containers each has a machine of its own
    check_options(parse(BOTH % 4, "t.yaml"), BOTH % 4, "t.yaml")


def test_where_a_broker_listens_everywhere_the_file_says_what_clients_are_told() -> None:
    text = EVERYWHERE % ""
    with pytest.raises(TopologyError, match=r"t\.yaml:2: .* write advertised\.listeners=PLAINTEXT://HOST:1"):
        check_options(parse(text, "t.yaml"), text, "t.yaml", SET_BY_TOPOLOGY)
    text = EVERYWHERE % ', options: {advertised.listeners: "PLAINTEXT://h:1"}'
    check_options(parse(text, "t.yaml"), text, "t.yaml")


@pytest.mark.parametrize(
    ("datacenter", "said"),
    [
        ("options: {node.id: 7}", "options.node.id: the topology says this to each of several brokers: leave it out"),
        ("options: {broker.rack: a}", "options.broker.rack: `racks` of the datacenter says this: leave it out"),
        ("listen: '0.0.0.0:9'", "listen: several brokers are told to clients one by one: write an address"),
        (
            "listen: 'h:9', options: {metrics.listener: 'h:7'}",
            "listener: h:9 is the address of a (listen) already",
        ),
    ],
)
def test_several_brokers_are_not_given_what_each_must_have_for_itself(datacenter: str, said: str) -> None:
    text = f"name: t\ndatacenters: {{a: {{brokers: 3, {datacenter}}}}}\n"
    with pytest.raises(TopologyError) as caught:
        check_options(parse(text, "t.yaml"), text, "t.yaml", SET_BY_TOPOLOGY)
    assert said in str(caught.value)
    alone = text.replace("brokers: 3, ", "")
    assert "listen" in datacenter or check_options(parse(alone, "t.yaml"), alone, "t.yaml") is None
