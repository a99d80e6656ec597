"""AlterConfigs and IncrementalAlterConfigs: what is refused at once, what the controller decides, what takes effect."""

import pytest

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import alter_configs as legacy
from isthmus.protocol.messages import describe_configs as dc
from isthmus.protocol.messages import incremental_alter_configs as m
from isthmus.protocol.messages import list_config_resources
from tests.running import run_by

from .serving import serve

E = ErrorCode
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind, name, *rows):
    configs = [m.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in rows]
    return m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def replaced(kind, name, **options):
    configs = [legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in options.items()]
    return legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def codes(serving, *resources, validate_only=False):
    module = legacy if isinstance(resources[0], legacy.AlterConfigsResource) else m
    answer = await serving.ask(module.Request(resources=list(resources), validate_only=validate_only))
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [each.error_code for each in answer.responses]


async def described(serving, kind, name):
    row = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = (await serving.ask(dc.Request(resources=[row]))).results
    return {each.name: (each.value, each.config_source) for each in result.configs}


@run_by(serve)
async def test_all_options_of_a_topic_are_replaced_but_those_set_at_creation_only(serving, /):
    await serving.topic("t", retention_ms="5", segment_ms="9")
    await serving.topic("mirrored", mirror_link="l", mirror_source_cluster_id="c", retention_ms="5")
    assert await codes(serving, replaced(TOPIC, "t", retention_ms="7", flush_ms="1")) == [E.NONE]
    assert serving.image.topics["t"].configs == {"flush.ms": "1", "retention.ms": "7"}
    assert await codes(serving, replaced(TOPIC, "t", segment_ms="8"), validate_only=True) == [E.NONE]
    assert serving.image.topics["t"].configs == {"flush.ms": "1", "retention.ms": "7"}
    assert await codes(serving, replaced(TOPIC, "t")) == [E.NONE]
    assert serving.image.topics["t"].configs == {}
    assert await codes(serving, replaced(TOPIC, "mirrored", segment_ms="8")) == [E.NONE]
    assert serving.image.topics["mirrored"].configs == {
        "mirror.link": "l",
        "mirror.source.cluster.id": "c",
        "segment.ms": "8",
    }


def test_options_of_this_broker_and_of_all_take_effect_at_once_and_after_a_restart(tmp_path):
    async def change(serving):
        await serving.topic("t")
        await serving.topic("own", max_message_bytes="77")
        answers = await codes(
            serving,
            resource(BROKER, "", ("message.max.bytes", SET, "1000"), ("log.retention.ms", SET, "5")),
            resource(BROKER, "1", ("message.max.bytes", SET, "2000")),
        )
        assert answers == [E.NONE, E.NONE]
        assert serving.config["message.max.bytes"] == 2000
        assert [serving.replicas.get(name, 0).log.config.max_message_bytes for name in ("t", "own")] == [2000, 77]
        assert serving.replicas.get("t", 0).log.config.retention_ms == 5
        assert (await described(serving, TOPIC, "t"))["max.message.bytes"] == ("2000", 2)
        assert (await described(serving, BROKER, "1"))["message.max.bytes"] == ("2000", 2)
        assert await described(serving, BROKER, "") == {"log.retention.ms": ("5", 3), "message.max.bytes": ("1000", 3)}

    async def look(serving):
        assert serving.config["message.max.bytes"] == 2000
        assert await codes(serving, replaced(BROKER, "1")) == [E.NONE]
        assert serving.replicas.get("t", 0).log.config.max_message_bytes == 1000
        assert await codes(serving, resource(BROKER, "", ("message.max.bytes", DELETE, None))) == [E.NONE]
        assert serving.replicas.get("t", 0).log.config.max_message_bytes == 1048588

    serve(change, tmp_path)
    serve(look, tmp_path)


@pytest.mark.parametrize(
    ("name", "rows", "code"),
    [
        ("1", [("node.id", SET, "2")], E.INVALID_REQUEST),
        ("", [("log.retention.ms", SET, "x")], E.INVALID_REQUEST),
        ("1", [("no.such", SET, "2")], E.INVALID_CONFIG),
        ("1", [("max.connections.per.ip", SET, "7")], E.INVALID_CONFIG),
        ("1", [("log.retention.ms", APPEND, "2")], E.INVALID_CONFIG),
        ("2", [("log.retention.ms", SET, "2")], E.INVALID_REQUEST),
        ("one", [("log.retention.ms", SET, "2")], E.INVALID_REQUEST),
        ("1", [("log.retention.ms", SET, None)], E.INVALID_REQUEST),
        ("1", [("log.retention.ms", 9, "2")], E.INVALID_REQUEST),
    ],
)
@run_by(serve)
async def test_options_of_brokers_that_are_refused(serving, /, name, rows, code):
    assert await codes(serving, resource(BROKER, name, *rows)) == [code]
    assert serving.image.broker_configs == {}


@run_by(serve)
async def test_a_list_of_a_broker_is_appended_to_and_subtracted_from(serving, /):
    await serving.topic("t")
    assert await codes(serving, resource(BROKER, "", ("log.cleanup.policy", APPEND, "compact"))) == [E.NONE]
    assert serving.config["log.cleanup.policy"] == ("delete", "compact")
    assert await codes(serving, resource(BROKER, "", ("log.cleanup.policy", SUBTRACT, "delete"))) == [E.NONE]
    assert serving.replicas.get("t", 0).log.config.cleanup_policy == "compact"


@run_by(serve)
async def test_resources_and_options_named_twice_nulls_and_kinds_that_have_no_options(serving, /):
    await serving.topic("t")
    await serving.topic("u")
    good = ("retention.ms", SET, "1")
    answers = await codes(
        serving, resource(TOPIC, "t", good), resource(TOPIC, "u", good), resource(TOPIC, "t", good)
    )  # fmt: skip
    assert answers == [E.INVALID_REQUEST, E.NONE, E.INVALID_REQUEST]
    assert await codes(serving, resource(TOPIC, "t", good, good)) == [E.INVALID_REQUEST]
    assert await codes(serving, resource(TOPIC, "t", ("retention.ms", SET, None))) == [E.INVALID_REQUEST]
    assert await codes(serving, replaced(TOPIC, "t", retention_ms=None)) == [E.INVALID_REQUEST]
    assert await codes(serving, resource(99, "t", good), resource(0, "1", good)) == [E.INVALID_REQUEST] * 2
    assert await codes(serving, replaced(8, "1", root="INFO")) == [E.INVALID_REQUEST]  # by the old request
    assert serving.image.topics["t"].configs == {}


def test_a_group_has_options_of_its_own_before_it_exists_and_after_a_restart(tmp_path):
    name = "consumer.session.timeout.ms"

    async def change(serving):
        assert await codes(serving, resource(GROUP, "g", (name, SET, "50000"))) == [E.NONE]
        assert await codes(serving, replaced(GROUP, "h", consumer_session_timeout_ms="46000")) == [E.NONE]
        assert (await described(serving, GROUP, "g"))[name] == ("50000", 8)
        assert await codes(serving, resource(GROUP, "h", (name, DELETE, None))) == [E.NONE]

    async def look(serving):
        assert serving.image.group_configs == {"g": {name: "50000"}}
        assert (await described(serving, GROUP, "h"))[name] == ("45000", 5)
        listed = await serving.ask(list_config_resources.Request(resource_types=[GROUP]))
        assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == [(GROUP, "g")]

    serve(change, tmp_path)
    serve(look, tmp_path)


@pytest.mark.parametrize(
    ("name", "row", "code"),
    [
        ("", ("consumer.session.timeout.ms", SET, "50000"), E.INVALID_REQUEST),
        ("g", ("consumer.session.timeout.ms", SET, "1"), E.INVALID_CONFIG),
        ("g", ("retention.ms", SET, "1"), E.INVALID_CONFIG),
        ("g", ("streams.rack.aware.assignment.tags", APPEND, "a"), E.INVALID_CONFIG),
        ("g", ("consumer.session.timeout.ms", SET, None), E.INVALID_REQUEST),
    ],
)
@run_by(serve)
async def test_options_of_groups_that_are_refused(serving, /, name, row, code):
    assert await codes(serving, resource(GROUP, name, row)) == [code]
    assert serving.image.group_configs == {}


@run_by(serve)
async def test_a_group_without_a_name_has_no_options(serving, /):
    row = dc.DescribeConfigsResource(resource_type=GROUP, resource_name="", configuration_keys=None)
    (result,) = (await serving.ask(dc.Request(resources=[row]))).results
    assert (result.error_code, result.configs) == (E.INVALID_REQUEST, [])
