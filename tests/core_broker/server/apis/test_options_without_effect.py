"""Options of Kafka's without effect here are taken, kept and described; what cannot be honoured is refused by name."""

import logging

import pytest

from isthmus.core_broker.broker import log_without_effect
from isthmus.core_broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from isthmus.core_broker.kafka_only import REFUSED
from isthmus.core_broker.option import ConfigError, Type
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import alter_configs, create_topics, describe_configs, incremental_alter_configs
from isthmus.protocol.option_notes import NO_EFFECT
from tests.running import run_by

from .serving import serve

TOPIC, BROKER = 2, 4
SET = 0
OF_THE_TOPIC, OF_THE_BROKER = 1, 2  # sources of a value
OF_TOPICS = [option for option in TOPIC_OPTIONS if option.inert]
OF_BROKERS = [option for option in BROKER_OPTIONS if option.inert and option.dynamic]
REFUSED_OF_BROKERS = [option for option in BROKER_OPTIONS if option.refused and option.dynamic]
READ_AT_START = [("listeners", "PLAINTEXT://:9092"), ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")]


def another(option):
    """A value of the option that is not its default."""
    if option.type is Type.BOOLEAN:
        return "false" if option.default == "true" else "true"
    if option.choices:
        return next(each for each in option.choices if each != option.default)
    if option.type not in (Type.INT, Type.LONG, Type.SHORT, Type.DOUBLE):
        return "0:1"
    for step in (1, -1):
        value = str(int(float(option.default)) + step)
        try:
            option.parse(value)
        except ConfigError:
            continue
        return value
    raise AssertionError(f"{option.name} has one value only")


def created(name, value):
    options = [create_topics.CreatableTopicConfig(name=name, value=value)]
    topic = create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=options)
    return create_topics.Request(topics=[topic], timeout_ms=10_000)


def replaced(kind, name, option, value):
    options = [alter_configs.AlterableConfig(name=option, value=value)]
    row = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=options)
    return alter_configs.Request(resources=[row])


def changed(kind, name, option, value):
    options = [incremental_alter_configs.AlterableConfig(name=option, config_operation=SET, value=value)]
    row = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=options)
    return incremental_alter_configs.Request(resources=[row])


async def outcome(serving, request):
    answer = await serving.ask(request)
    (row,) = answer.topics if isinstance(request, create_topics.Request) else answer.responses
    return row.error_code, row.error_message


async def described(serving, kind, name, option):
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[option]
    )
    answer = await serving.ask(describe_configs.Request(resources=[resource], include_documentation=True))
    [entry] = answer.results[0].configs
    return entry


async def is_refused(serving, request, option):
    code, message = await outcome(serving, request)
    assert code == ErrorCode.INVALID_CONFIG, type(request)
    assert option in message and ("this value is not supported" in message or "cannot be changed here" in message)


def test_there_are_such_options():
    assert OF_TOPICS and OF_BROKERS and REFUSED_OF_BROKERS and REFUSED


@pytest.mark.parametrize("option", OF_TOPICS, ids=lambda option: option.name)
@run_by(serve)
async def test_topics_have_them_as_with_kafka(serving, /, caplog, option):
    caplog.set_level(logging.INFO, "isthmus.core_broker.broker")
    serving.controller.subscribe(lambda delta: log_without_effect(delta, serving.image))
    await serving.topic("t")
    name, value = option.name, another(option)
    for topic, request in (
        ("new", created(name, value)),
        ("t", changed(TOPIC, "t", name, value)),
        ("t", replaced(TOPIC, "t", name, value)),
    ):
        assert await outcome(serving, request) == (0, None)
        assert serving.image.topics[topic].configs == {name: value}
        entry = await described(serving, TOPIC, topic, name)
        assert (entry.value, entry.config_source) == (value, OF_THE_TOPIC)
        assert entry.documentation.endswith(NO_EFFECT + option.inert)
    said = f"options that have no effect here: {name}={value} ({option.inert})"
    assert caplog.messages == [f"topic new: {said}", f"topic t: {said}"]  # the last request changed nothing


@run_by(serve)
async def test_topics_cannot_have_what_cannot_be_honoured(serving, /):
    await serving.topic("t")
    name = "remote.storage.enable"
    for request in (
        created(name, "true"), replaced(TOPIC, "t", name, "true"), changed(TOPIC, "t", name, "true"),
    ):  # fmt: skip
        await is_refused(serving, request, name)
    assert list(serving.image.topics) == ["t"] and serving.image.topics["t"].configs == {}
    assert await outcome(serving, created(name, "FALSE")) == (0, None)


@run_by(serve)
async def test_brokers_have_them_while_they_run(serving, /):
    for option in OF_BROKERS:
        value = another(option)
        for broker in ("", "1"):
            assert await outcome(serving, changed(BROKER, broker, option.name, value)) == (0, None), option.name
        entry = await described(serving, BROKER, "1", option.name)
        assert (entry.value, entry.config_source) == (value, OF_THE_BROKER)
        assert entry.documentation.endswith(NO_EFFECT + option.inert)
    assert sorted(serving.image.broker_configs["1"]) == [option.name for option in OF_BROKERS]


@run_by(serve)
async def test_brokers_cannot_have_what_cannot_be_honoured(serving, /):
    rows = [(option.name, another(option)) for option in REFUSED_OF_BROKERS] + READ_AT_START
    for name, value in rows:
        for broker in ("1", ""):
            await is_refused(serving, changed(BROKER, broker, name, value), name)
            await is_refused(serving, replaced(BROKER, broker, name, value), name)
    assert serving.image.broker_configs == {}
