"""Every option that Kafka has and that changes nothing here: whoever sets it is told so, by its name, in every way."""

import pytest

from isthmus.core_broker.config import BROKER_OPTIONS, TOPIC_OPTIONS
from isthmus.core_broker.kafka_only import INSTEAD
from isthmus.core_broker.option import ConfigError, Type
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import alter_configs, create_topics, incremental_alter_configs

from .serving import serve

TOPIC, BROKER = 2, 4
SET = 0
OF_TOPICS = [option for option in TOPIC_OPTIONS if option.inert]
OF_BROKERS = [option for option in BROKER_OPTIONS if option.inert]
OF_KAFKA = [pattern.replace("*", "x") for pattern, _ in INSTEAD]
READ_AT_START = [("listeners", "PLAINTEXT://:9092"), ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")]


def another(option):
    """A value of the option that is not its default."""
    if option.type is Type.BOOLEAN:
        return "false" if option.default == "true" else "true"
    if option.type is Type.LIST:
        return "0:1"
    for step in (1, -1):
        value = str(int(option.default) + step)
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


async def is_refused(serving, request, option):
    answer = await serving.ask(request)
    (row,) = answer.topics if isinstance(request, create_topics.Request) else answer.responses
    assert row.error_code == ErrorCode.INVALID_CONFIG, type(request)
    assert option in row.error_message and "no effect here" in row.error_message


def test_there_are_such_options():
    assert OF_TOPICS and OF_BROKERS and OF_KAFKA


@pytest.mark.parametrize("option", OF_TOPICS, ids=lambda option: option.name)
def test_topics_cannot_have_them(tmp_path, option):
    async def work(serving):
        await serving.topic("t")
        name, value = option.name, another(option)
        for request in (
            created(name, value), replaced(TOPIC, "t", name, value), changed(TOPIC, "t", name, value),
        ):  # fmt: skip
            await is_refused(serving, request, name)
        assert list(serving.image.topics) == ["t"] and serving.image.topics["t"].configs == {}
        assert (await serving.ask(created(name, option.default))).topics[0].error_code == 0

    serve(tmp_path, work)


def test_brokers_cannot_have_them_while_they_run(tmp_path):
    rows = [(option.name, another(option)) for option in OF_BROKERS]
    rows += [(name, "1") for name in OF_KAFKA] + READ_AT_START

    async def work(serving):
        for name, value in rows:
            for broker in ("1", ""):
                await is_refused(serving, changed(BROKER, broker, name, value), name)
                await is_refused(serving, replaced(BROKER, broker, name, value), name)
        assert serving.image.broker_configs == {}

    serve(tmp_path, work)
