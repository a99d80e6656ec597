"""The compose file of a topology: who meets whom on which network, what it is told, and how it is written down."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from isthmus.console.main import app
from isthmus.core_broker.config import BrokerConfig
from isthmus.deploy.compose import Place, compose_file, document, place, published, render
from isthmus.deploy.errors import TopologyError
from isthmus.deploy.launch import PORT_BASE, Layout
from isthmus.deploy.topology import Topology, load
from isthmus.readiness import VARIABLE

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "examples" / "flights" / "topology.yaml"
COMMITTED = ROOT / "docker-compose.multi-dc.yml"
KINDS = ("broker", "topics", "mirror", "worker")
APP = Place("shop.counts:app")


def flights() -> dict[str, Any]:
    return document(load(FLIGHTS), {"delays": Place("isthmus.examples.flights.delays:app")})


def topology(text: str, tmp_path: Path) -> Topology:
    (tmp_path / "t.yaml").write_text(f"name: small\n{text}")
    return load(tmp_path / "t.yaml")


def read(text: str, version: tuple[int, int] = (1, 1)) -> Any:
    """As docker-compose 1.29 reads it: by YAML 1.1."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(text)


def test_the_committed_file_is_current():
    text = compose_file(FLIGHTS, COMMITTED)
    assert COMMITTED.read_text() == text, "isthmus compose -f examples/flights/topology.yaml -o " + COMMITTED.name


def test_what_is_written_says_the_same_in_either_yaml():
    made = flights()
    for version in ((1, 1), (1, 2)):
        found = read(render(made), version)
        assert {part: found[part] for part in made} == made


def test_every_process_of_the_supervisor_is_a_service_by_the_same_name():
    made = flights()["services"]
    assert [name for name in made if not name.endswith("-topics") and name != "spark"] == [
        "ewr-broker", "jfk-broker", "lga-broker", "aggregate-broker",
        "ewr-aggregate-mirror", "jfk-aggregate-mirror", "lga-aggregate-mirror", "delays-worker",
    ]  # fmt: skip


def test_only_mirrors_and_their_target_join_the_wan():
    made = flights()
    on_wan = [name for name, service in made["services"].items() if "wan" in service["networks"]]
    assert on_wan == ["aggregate-broker", "ewr-aggregate-mirror", "jfk-aggregate-mirror", "lga-aggregate-mirror"]
    assert made["networks"] == {"ewr": {}, "jfk": {}, "lga": {}, "aggregate": {}, "wan": {"internal": True}}


def test_whoever_is_told_of_a_broker_shares_a_network_with_it():
    """The name that a broker advertises inside is its service's, which Docker resolves for members of its networks."""
    made = flights()["services"]
    asked = 0
    for name, service in made.items():
        words = [*service["command"], f"--bootstrap={service.get('environment', {}).get('ISTHMUS_BOOTSTRAP', '')}"]
        for word in words:
            option, _, value = word.partition("=")
            if option in ("--source", "--target", "--bootstrap") and value:
                broker = made[value.removesuffix(":9092")]
                assert set(broker["networks"]) & set(service["networks"]), (name, word)
                assert f"INSIDE://{value}" in broker["command"][-1]
                asked += 1
    assert asked == 2 * 3 + 4 + 1


def test_datacenters_that_no_mirror_joins_do_not_meet():
    made = flights()["services"]
    for name in ("ewr", "jfk", "lga"):
        inside = [each for each, service in made.items() if name in service["networks"]]
        assert inside == [f"{name}-broker", f"{name}-topics", f"{name}-aggregate-mirror"]


def test_every_container_is_bounded_and_can_write_nowhere_else():
    for name, service in flights()["services"].items():
        assert service["read_only"] is True and service["tmpfs"][0].startswith("/tmp:size=")
        assert service["cap_drop"] == ["ALL"] and "privileged" not in service
        assert service["mem_limit"] and 0 < service["cpus"] <= 1 and service["pids_limit"]
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
        assert service["restart"] == ("no" if name.endswith("-topics") else "unless-stopped")


def test_a_broker_may_end_its_stop_by_itself_before_docker_kills_it(tmp_path):
    limit_s = BrokerConfig()["shutdown.timeout.ms"] / 1000
    for name, service in flights()["services"].items():
        grace_s = int(service["stop_grace_period"].removesuffix("s"))
        assert grace_s > limit_s if name.endswith("-broker") else grace_s == 30
    options = "{a: {options: {shutdown.timeout.ms: 90500}}, b: {options: {shutdown.timeout.ms: soon}}}"
    made = document(topology(f"datacenters: {options}\n", tmp_path), {})["services"]
    assert [made[f"{name}-broker"]["stop_grace_period"] for name in "ab"] == ["101s", "70s"]
    layout = Layout(topology(f"datacenters: {options}\n", tmp_path), FLIGHTS, tmp_path, {"a": "h:1", "b": "h:2"}, {})
    assert [layout.brokers(name)[0].stop_timeout_s for name in "ab"] == [101, 70]  # nor before the supervisor does


def test_ports_are_on_loopback_and_advertised_as_they_are_published():
    for service, port in zip(("ewr", "jfk", "lga", "aggregate"), range(19092, 19096), strict=True):
        broker = flights()["services"][f"{service}-broker"]
        assert broker["ports"] == [f"127.0.0.1:{port}:9093"]
        assert broker["command"][-1].endswith(f",OUTSIDE://127.0.0.1:{port}")


def test_things_start_in_the_order_they_need_each_other(tmp_path):
    made = flights()["services"]
    done, healthy = {"condition": "service_completed_successfully"}, {"condition": "service_healthy"}
    assert made["ewr-topics"]["depends_on"] == {"ewr-broker": healthy}
    assert made["ewr-aggregate-mirror"]["depends_on"] == {"ewr-topics": done, "aggregate-topics": done}
    assert made["delays-worker"]["depends_on"] == {"aggregate-topics": done}
    bare = "datacenters: {a: {}, b: {}}\nmirrors: [{name: m, source: a, target: b, topics: [x]}]\n"
    made = document(topology(bare, tmp_path), {})["services"]
    assert list(made) == ["a-broker", "b-broker", "m-mirror", "spark"]
    assert made["m-mirror"]["depends_on"] == {"a-broker": healthy, "b-broker": healthy}


def test_topics_are_made_by_commands_that_the_shell_reads_as_they_were_meant(tmp_path):
    text = "datacenters: {a: {topics: {t: {partitions: 2, options: {cleanup.policy: 'delete, compact; $HOME'}}}}}\n"
    made = document(topology(text, tmp_path), {})["services"]["a-topics"]
    assert made["entrypoint"] == ["sh", "-euc"]
    [script] = made["command"]
    words = ["isthmus", "topic", "create", "t", "--if-missing", "--partitions=2"]
    assert shlex.split(script.replace("$$", "$")) == [*words, "--set=cleanup.policy=delete, compact; $HOME"]


def test_a_topic_whose_name_begins_like_an_option_is_a_topic(tmp_path):
    made = document(topology("datacenters: {a: {topics: {-t: {}}}}\n", tmp_path), {})["services"]["a-topics"]
    assert made["command"] == ["isthmus topic create --if-missing --partitions=1 -- -t\n"]


def test_a_dollar_is_no_variable(tmp_path):
    text = "datacenters: {a: {}, b: {}}\nmirrors: [{name: m, source: a, target: b, topics: ['^flights$']}]\n"
    assert "--topics=^flights$$" in document(topology(text, tmp_path), {})["services"]["m-mirror"]["command"]


def test_words_that_older_yaml_takes_for_something_else_stay_words(tmp_path):
    names = ["no", "on", "y", "12", "1e3", "true"]
    text = f"datacenters: {{{', '.join(repr(name) + ': {}' for name in names)}}}\n"
    made = document(topology(text, tmp_path), {})
    found = read(render(made))
    assert list(found["networks"]) == names
    networks = [service["networks"] for name, service in found["services"].items() if name != "spark"]
    assert networks == [[name] for name in names]


def test_brokers_alone_have_the_health_check_of_the_image():
    made = flights()["services"]
    assert [name for name, service in made.items() if "healthcheck" not in service] == [
        "ewr-broker", "jfk-broker", "lga-broker", "aggregate-broker",
    ]  # fmt: skip
    others = {name: made[name].get("healthcheck") for name in made if not name.endswith("-broker")}
    looked_for = [name for name, check in others.items() if check != {"disable": True}]
    assert looked_for == [name for name in made if name.endswith(("-mirror", "-worker"))]
    for name in looked_for:  # what it makes once it works
        assert others[name]["test"] == ["CMD", "test", "-e", made[name]["environment"][VARIABLE]]


def test_spark_is_there_when_asked_for_and_sees_the_aggregate_alone(tmp_path):
    spark = flights()["services"]["spark"]
    assert spark["profiles"] == ["spark"] and spark["networks"] == ["aggregate"]
    assert [name for name, service in flights()["services"].items() if "profiles" in service] == ["spark"]
    alone = document(topology("datacenters: {a: {}, b: {}}\n", tmp_path), {})["services"]["spark"]
    assert alone["networks"] == ["a", "b"]


# --- Apps -----------------------------------------------------------------------------------------------------------


def test_an_app_of_the_package_is_taken_from_the_image():
    [worker] = load(FLIGHTS).workers
    assert place(worker, FLIGHTS, ROOT) == Place("isthmus.examples.flights.delays:app")


def test_any_other_app_is_mounted_with_its_folder_and_cannot_be_written(tmp_path):
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps" / "counts.py").write_text("app = None\n")
    worker = "{name: w, app: 'apps/counts.py:app', datacenter: a, web_port: 6070}"
    made = topology(f"datacenters: {{a: {{}}}}\nworkers: [{worker}]\n", tmp_path)
    found = place(made.workers[0], tmp_path / "t.yaml", tmp_path)
    assert found == Place("/apps/counts.py:app", "./apps")
    service = document(made, {"w": found})["services"]["w-worker"]
    assert service["volumes"] == ["w-tables:/data", "./apps:/apps:ro"]
    to_be_reached = ["--web-port=6070", "--web-bind=0.0.0.0"]
    assert service["command"] == ["/apps/counts.py:app", "--bootstrap=a-broker:9092", "--name=w", *to_be_reached]
    assert service["ports"] == ["127.0.0.1:6070:6070"]
    elsewhere = place(made.workers[0], tmp_path / "t.yaml", tmp_path / "made" / "here")
    assert elsewhere.folder == "../../apps"


def test_an_app_that_is_not_there_is_named(tmp_path):
    topology("datacenters: {a: {}}\nworkers: [{name: w, app: 'apps/counts.py:app', datacenter: a}]\n", tmp_path)
    with pytest.raises(TopologyError) as caught:
        compose_file(tmp_path / "t.yaml", tmp_path / "c.yaml")
    words = f"the app of worker w is to be {tmp_path}/apps/counts.py: there is no such file"
    assert str(caught.value) == f"{tmp_path}/t.yaml: {words}"


def test_each_worker_keeps_its_tables_on_a_volume_of_its_own_in_the_folder_it_starts_in(tmp_path):
    workers = ", ".join(f"{{name: {name}, app: 'shop.counts:app', datacenter: w}}" for name in ("w", "x"))
    made = document(topology(f"datacenters: {{w: {{}}}}\nworkers: [{workers}]\n", tmp_path), dict.fromkeys("wx", APP))
    assert [made["services"][f"{name}-worker"]["volumes"] for name in "wx"] == [["w-tables:/data"], ["x-tables:/data"]]
    assert list(made["volumes"]) == ["w-data", "w-tables", "x-tables", "spark-data"]


def test_a_module_is_named_as_it_is(tmp_path):
    text = "datacenters: {a: {}}\nworkers: [{name: w, app: 'shop.counts:app', datacenter: a}]\n"
    [worker] = topology(text, tmp_path).workers
    assert place(worker, tmp_path / "t.yaml", tmp_path) == Place("shop.counts:app")


# --- Ports ----------------------------------------------------------------------------------------------------------


def test_a_port_that_listen_names_is_kept_and_moves_no_other(tmp_path):
    made = topology("datacenters: {a: {}, b: {listen: 'localhost:9092'}, c: {}, d: {listen: '0.0.0.0:0'}}\n", tmp_path)
    assert published(made, PORT_BASE) == {
        "a": "127.0.0.1:19092", "b": "127.0.0.1:9092", "c": "127.0.0.1:19094", "d": "0.0.0.0:19095",
    }  # fmt: skip
    brokers = document(made, {}, 20_000)["services"]
    assert brokers["c-broker"]["ports"] == ["127.0.0.1:20002:9093"]
    assert brokers["d-broker"]["command"][-1].endswith("OUTSIDE://127.0.0.1:20003")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: {}, b: {listen: '127.0.0.1:19092'}}", "datacenters.b: port 19092 is a's already: change `listen` or"),
        ("{a: {listen: 'my-host:9092'}}", "datacenters.a.listen: 'my-host' is not an IPv4 address"),
        ("{wan: {}}", "datacenters.wan: is the name of the network between datacenters"),
        ("{spark: {}}", "datacenters.spark: is the name of Spark's volume"),
    ],
)
def test_what_a_compose_file_cannot_hold_is_named(tmp_path, text, said):
    topology(f"datacenters: {text}\n", tmp_path)
    with pytest.raises(TopologyError) as caught:
        compose_file(tmp_path / "t.yaml", tmp_path / "c.yaml")
    assert str(caught.value).startswith(f"{tmp_path}/t.yaml: {said}")


def test_options_that_a_compose_file_sets_are_named_with_their_lines(tmp_path):
    topology("datacenters:\n  a:\n    options: {advertised.listeners: x, log.dirs: y}\n", tmp_path)
    with pytest.raises(TopologyError) as caught:
        compose_file(tmp_path / "t.yaml", tmp_path / "c.yaml")
    [first, second] = str(caught.value).splitlines()
    assert first.startswith(f"{tmp_path}/t.yaml:4: datacenters.a.options.advertised.listeners: the compose file sets")
    assert second.startswith(f"{tmp_path}/t.yaml:4: datacenters.a.options.log.dirs: the compose file sets")


def test_ports_end_where_there_are_none(tmp_path):
    with pytest.raises(TopologyError, match="there is no port 65536: choose a smaller --port-base"):
        published(topology("datacenters: {a: {}, b: {}}\n", tmp_path), 65_535)


# --- The command ----------------------------------------------------------------------------------------------------


def isthmus(*arguments: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(app, ["compose", *arguments])
    return done.exit_code, done.output, done.exception


def test_the_heading_holds_the_command_that_makes_the_file(tmp_path, monkeypatch):
    topology("datacenters: {a: {}}\n", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert isthmus("-f", "t.yaml", "-o", "c.yaml", "--port-base", "20000")[0] == 0
    first = (tmp_path / "c.yaml").read_text()
    [command] = [line[1:].strip() for line in first.splitlines() if line.startswith("#     isthmus compose ")]
    (tmp_path / "c.yaml").unlink()
    assert isthmus(*shlex.split(command)[2:])[0] == 0
    assert (tmp_path / "c.yaml").read_text() == first
    assert "# From outside: a 127.0.0.1:20000." in first


def test_check_writes_nothing_and_says_how_to(tmp_path, monkeypatch):
    topology("datacenters: {a: {}}\n", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, error = isthmus("-f", "t.yaml", "-o", "c.yaml", "--check")
    assert code == 1 and "by `isthmus compose -f t.yaml -o c.yaml`" in str(error)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.yaml"]
    assert isthmus("-f", "t.yaml", "-o", "c.yaml")[0] == 0
    assert isthmus("-f", "t.yaml", "-o", "c.yaml", "--check")[0] == 0
    (tmp_path / "t.yaml").write_text("name: small\ndatacenters: {b: {}}\n")
    assert isthmus("-f", "t.yaml", "-o", "c.yaml", "--check")[0] == 1


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    topology("datacenters: {a: {}}\n", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for where, why in (("no/such/c.yaml", "No such file or directory"), ("folder", "Is a directory")):
        code, _, error = isthmus("-f", "t.yaml", "-o", where)
        assert (code, str(error)) == (1, f"{where}: cannot be written: {why}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "t.yaml"]


def test_without_a_name_it_is_printed(tmp_path, monkeypatch):
    topology("datacenters: {a: {}}\n", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, text, _ = isthmus("-f", "t.yaml")
    assert code == 0 and list(read(text)["services"]) == ["a-broker", "spark"]
    assert "--check needs the file" in str(isthmus("-f", "t.yaml", "--check")[2])


# --- Several brokers ------------------------------------------------------------------------------------------------

THREE = """\
datacenters:
  a: {brokers: 3, racks: [x, y, z], topics: {t: {partitions: 6}, few: {replication_factor: 1}}}
  b: {}
mirrors: [{name: b-a, source: b, target: a, topics: [u]}]
"""


def arguments_of(service: dict[str, Any]) -> dict[str, str]:
    return dict(each.removeprefix("--set=").split("=", 1) for each in service["command"] if "=" in each)


def test_several_brokers_are_services_that_know_each_other(tmp_path):
    made = document(topology(THREE, tmp_path), {})
    names = ["a-broker-1", "a-broker-2", "a-broker-3"]
    brokers = [made["services"][name] for name in names]
    options = [arguments_of(each) for each in brokers]
    assert [each["node.id"] for each in options] == ["1", "2", "3"]
    assert [each["broker.rack"] for each in options] == ["x", "y", "z"]
    voters = ",".join(f"{i}@{name}:9094" for i, name in enumerate(names, 1))
    assert {each["controller.quorum.voters"] for each in options} == {voters}
    assert len({each["cluster.id"] for each in options}) == 1
    for number, (name, broker) in enumerate(zip(names, brokers, strict=True)):
        assert broker["ports"] == [f"127.0.0.1:{PORT_BASE + number}:9093"]
        assert broker["volumes"] == [f"a-data-{number + 1}:/data"] and broker["networks"] == ["a", "wan"]
        told = arguments_of(broker)["advertised.listeners"].split(",")
        assert told == [
            f"INSIDE://{name}:9092",
            f"OUTSIDE://127.0.0.1:{PORT_BASE + number}",
            f"CONTROLLER://{name}:9094",
        ]
        BrokerConfig({key: value for key, value in arguments_of(broker).items() if not key.startswith("--")})
    assert list(made["volumes"]) == ["a-data-1", "a-data-2", "a-data-3", "b-data", "spark-data"]
    assert made["services"]["b-broker"]["ports"] == [f"127.0.0.1:{PORT_BASE + 3}:9093"]


def test_who_needs_a_datacenter_waits_for_all_its_brokers_and_is_told_of_them(tmp_path):
    made = document(topology(THREE, tmp_path), {})["services"]
    everyone = "a-broker-1:9092,a-broker-2:9092,a-broker-3:9092"
    topics = made["a-topics"]
    assert list(topics["depends_on"]) == ["a-broker-1", "a-broker-2", "a-broker-3"]
    assert topics["environment"] == {"ISTHMUS_BOOTSTRAP": everyone}
    assert topics["command"][0].splitlines() == [
        "isthmus topic create t --if-missing --partitions=6 --replication-factor=3",
        "isthmus topic create few --if-missing --partitions=1 --replication-factor=1 --set=min.insync.replicas=1",
    ]
    mirror = made["b-a-mirror"]
    assert f"--target={everyone}" in mirror["command"] and list(mirror["depends_on"]) == ["b-broker", "a-topics"]
