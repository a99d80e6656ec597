"""The topology file: what is right is read, what is wrong is named with its line and a way out."""

from pathlib import Path

import pytest

from docs.generate import TOPOLOGY_EXAMPLE
from isthmus.deploy.errors import TopologyError
from isthmus.deploy.topology import PARTS, Topology, load, parse

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights" / "topology.yaml"

GOOD = """\
name: two
datacenters:
  here: {}
  there: {options: {num.partitions: 3}}
mirrors:
  - name: here-there
    source: here
    target: there
    topics: [a]
"""


def complaint(tmp_path: Path, text: str) -> str:
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(TopologyError) as caught:
        load(file)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("file", sorted(FLIGHTS.parents[1].glob("*/topology.yaml")), ids=lambda file: file.parent.name)
def test_every_example_is_a_topology(file):
    assert load(file).datacenters


def test_the_example_is_read():
    topology = load(FLIGHTS)
    assert list(topology.datacenters) == ["ewr", "jfk", "lga", "aggregate"]
    assert topology.datacenters["lga"].topics["flights"].options == {"retention.ms": -1}
    assert [mirror.target for mirror in topology.mirrors] == ["aggregate"] * 3


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:9092", "[::]:0", "my_host.example:65535"])
def test_addresses_of_every_kind_are_read(tmp_path, listen):
    file = tmp_path / "t.yaml"
    file.write_text(GOOD.replace("here: {}", f'here: {{listen: "{listen}"}}\n  other: {{}}', 1))
    assert load(file).datacenters["here"].listen == listen


def test_the_example_of_the_reference_is_read_and_every_key_is_explained():
    topology = parse(TOPOLOGY_EXAMPLE, "topology.md")
    assert [len(part) for part in (topology.datacenters, topology.mirrors, topology.workers)] == [2, 1, 1]
    for part in (Topology, *PARTS.values()):
        assert [key for key, field in part.model_fields.items() if not field.description] == []


def test_defaults(tmp_path):
    file = tmp_path / "t.yaml"
    file.write_text(GOOD)
    topology = load(file)
    assert topology.datacenters["here"].listen == "127.0.0.1:0"
    assert topology.mirrors[0].rename == "{source}.{topic}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("source: here", "source: hree"), "t.yaml:7: mirrors.0.source: no datacenter is called 'hree': did you mean"),
        (("target: there", "target: here"), "t.yaml:8: mirrors.0.target: a mirror needs two different datacenters"),
        (("topics: [a]", "topics: [a]\n    topcs: [b]"), "t.yaml:10: mirrors.0.topcs: is not a key of this part"),
        (
            ("mirrors:", "mirors: []\nmirrors:"),
            "t.yaml:5: mirors: is not a key of this part, which has name, datacenters,",
        ),
        (
            ("here: {}", "here: {topics: {topics: {partition: 3}}}"),
            "partition: is not a key of this part, which has partitions, replication_factor, options: did you mean",
        ),
        (
            ("here: {}", "here: {xyz: 1}"),
            "xyz: is not a key of this part, which has brokers, racks, listen, options, topics",
        ),
        (("topics: [a]", "topics: [a]\n    rename: x"), "t.yaml:10: mirrors.0.rename: Value error, 'x'"),
        (
            ("here: {}", "here: {brokers: 4}"),
            "t.yaml:3: datacenters.here.brokers: 4 brokers can lose no more of them than 3 can, since a majority must "
            "be there: set 5, not 4",
        ),
        (
            ("here: {}", "here: {brokers: 0}"),
            "here.brokers: each broker of a datacenter votes, and there are 1, 3 or 5",
        ),
        (("here: {}", "here: {racks: [a, b]}"), "here.racks: 2 racks for 1 broker: leave out"),
        (
            ("here: {}", "here: {brokers: 3, listen: 'h:65534'}"),
            "here.listen: 3 brokers have as many ports, and there is none after 65535",
        ),
        (
            ("here: {}", "here: {brokers: 3, listen: 'h:9090'}\n  other: {listen: 'h:9092'}"),
            "t.yaml:4: datacenters.other.listen: h:9092 is the address of here already",
        ),
        (
            ("here: {}", "here: {topics: {a: {replication_factor: 2}}}"),
            "topics.a.replication_factor: 2 replicas are on as many brokers, not on 1 broker: write less",
        ),
        (("here: {}", "here: {listen: nowhere}"), "t.yaml:3: datacenters.here.listen: 'nowhere' is not HOST:PORT"),
        (("name: two", "name: Two!"), "t.yaml:1: name: 'Two!' may hold lower-case letters"),
        (("here: {}", "here: {}\n  here: {}"), 't.yaml:4: is not YAML that can be used: found duplicate key "here"'),
        (("here: {}", "here: {"), "is not YAML that can be used"),
        (("name: two\n", ""), "name: is missing"),
        (("name: two", "name: 2"), 't.yaml:1: name: is 2, not text: write it in quotes, "2"'),
        (
            ("name: two", "name: -two"),
            "t.yaml:1: name: '-two' may hold lower-case letters",
        ),
        (("name: two", "name: two\0"), "t.yaml: is not YAML: unacceptable character"),
        (("here: {}", "here:"), "t.yaml:3: datacenters.here: is empty: write {} to take the defaults, or leave it out"),
        (("here: {}", "here: []"), "t.yaml:3: datacenters.here: is a list, and must be a mapping: {name: …}"),
        (("here: {}", "here: {topics: {t: }}"), "t.yaml:3: datacenters.here.topics.t: is empty: write {}"),
        (("here: {}", "1: {}"), 't.yaml:3: datacenters.1: is 1, not text: write it in quotes, "1"'),
        (("here: {}", "Here: {}"), "t.yaml:3: datacenters.Here: 'Here' may hold lower-case letters"),
        (
            ("here: {}", "here: {topics: {t: {partitions: three}}}"),
            "t.yaml:3: datacenters.here.topics.t.partitions: must be a valid integer, not 'three'",
        ),
        (
            ("here: {}", "here: {options: {log.cleanup.policy: [compact, delete]}}"),
            "t.yaml:3: datacenters.here.options.log.cleanup.policy: a list is no option's value, which is text, a "
            "number, true or false: write several as one text, 'compact,delete'",
        ),
        (("here: {}", "here: {listen: 'A://h:1'}"), "'A://h:1' is not HOST:PORT"),
        (("here: {}", "here: {listen: '::1:0'}"), "'::1:0' is not HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092"),
        (("here: {}", "here: {listen: 'h:²'}"), "'h:²' is not HOST:PORT"),
        (
            ("here: {}", "here: {listen: 'h:1'}\n  also: {listen: 'h:1'}"),
            "t.yaml:4: datacenters.also.listen: h:1 is the address of here already",
        ),
        (
            ("here: {}", "here: {listen: '127.0.0.1:1'}\n  also: {listen: 'localhost:1'}"),
            "t.yaml:4: datacenters.also.listen: localhost:1 is the address of here already",
        ),
        (
            ("here: {}", "here: {listen: '127.0.0.1:1'}\n  also: {listen: '0.0.0.0:1'}"),
            "t.yaml:4: datacenters.also.listen: 0.0.0.0:1 is the address of here already",
        ),
        (("topics: [a]", "topics: ['a[']"), "t.yaml:9: mirrors.0.topics: 'a[' is not a regular expression"),
        (("topics: [a]", "topics: ['']"), "t.yaml:9: mirrors.0.topics: an empty one matches no topic"),
        (("topics: [a]", "topics: a"), "t.yaml:9: mirrors.0.topics: is 'a', and must be a list: [a, b]"),
        (("topics: [a]", "topics: []"), "t.yaml:9: mirrors.0.topics: is empty: name one at least"),
        (
            ("topics: [a]", "topics: [a]\n    rename: '{source}/{topic}'"),
            "t.yaml:10: mirrors.0.rename: '{source}/{topic}' gives no topic a valid name: Topic name is invalid",
        ),
        (("  - name: here-there", "  -\n  - name: here-there"), "t.yaml:6: mirrors.0: is empty, and must be a mapping"),
        (
            ("mirrors:", "workers: [{name: w, app: ':', datacenter: here}]\nmirrors:"),
            "t.yaml:5: workers.0.app: ':' names no object",
        ),
        (
            (
                "mirrors:",
                "workers:\n  - &w {name: w, app: 'a:b', datacenter: here, web_port: 6070}\n"
                "  - {<<: *w, name: v}\nmirrors:",
            ),
            "workers.1.web_port: 6070 is the port of worker w already",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, change, said):
    text = GOOD.replace(*change)
    assert text != GOOD
    expected = said.replace("Value error, ", "")
    assert expected in complaint(tmp_path, text)


def test_all_mistakes_are_listed_at_once(tmp_path):
    text = GOOD.replace("source: here", "source: x").replace("target: there", "target: y")
    assert len(complaint(tmp_path, text).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: two\ndatacenters: " + "[" * 30_000 + "]" * 30_000, "t.yaml: is nested deeper than any topology"),
        ("#" * ((1 << 20) + 1), "t.yaml: is no topology: such a file has 1 MiB at most"),
    ],
)
def test_a_file_that_is_no_topology_at_all_is_called_so(tmp_path, text, said):
    assert complaint(tmp_path, text) == said


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TopologyError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")
