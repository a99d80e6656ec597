"""The topology file: what is right is read, what is wrong is named with its line and a way out."""

from pathlib import Path

import pytest

from isthmus.deploy.errors import TopologyError
from isthmus.deploy.topology import load

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


def test_the_example_is_read():
    topology = load(FLIGHTS)
    assert list(topology.datacenters) == ["ewr", "jfk", "lga", "aggregate"]
    assert topology.datacenters["lga"].topics["flights"].options == {"retention.ms": -1}
    assert [mirror.target for mirror in topology.mirrors] == ["aggregate"] * 3


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
            "partition: is not a key of this part, which has partitions, options: did you mean",
        ),
        (("here: {}", "here: {xyz: 1}"), "xyz: is not a key of this part, which has brokers, listen, options, topics"),
        (("topics: [a]", "topics: [a]\n    rename: x"), "t.yaml:10: mirrors.0.rename: Value error, 'x'"),
        (("here: {}", "here: {brokers: 3}"), "t.yaml:3: datacenters.here.brokers: this release runs one broker"),
        (("here: {}", "here: {listen: nowhere}"), "t.yaml:3: datacenters.here.listen: 'nowhere' is not HOST:PORT"),
        (("name: two", "name: Two!"), "t.yaml:1: name: 'Two!' may hold lower-case letters"),
        (("here: {}", "here: {}\n  here: {}"), 't.yaml:4: is not YAML that can be used: found duplicate key "here"'),
        (("here: {}", "here: {"), "is not YAML that can be used"),
        (("name: two\n", ""), "name: is missing"),
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


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TopologyError, match=r"none\.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")
