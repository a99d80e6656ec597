"""Our bytes against kafka-python's encoder and decoder, for every API and version that both know."""

import importlib
import uuid
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from isthmus.protocol.messages import APIS

from .samples import CODECS, encoded, structs, versions_of

MODULES = [
    "kafka.protocol.producer.produce",
    "kafka.protocol.producer.transaction",
    "kafka.protocol.consumer.fetch",
    "kafka.protocol.consumer.group",
    "kafka.protocol.consumer.metadata",
    "kafka.protocol.consumer.offsets",
    "kafka.protocol.metadata.api_versions",
    "kafka.protocol.metadata.find_coordinator",
    "kafka.protocol.metadata.metadata",
    "kafka.protocol.admin.cluster",
    "kafka.protocol.admin.configs",
    "kafka.protocol.admin.groups",
    "kafka.protocol.admin.topics",
    "kafka.protocol.admin.transactions",
]


def theirs():
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how it reads its own files
        modules = [importlib.import_module(module) for module in MODULES]
    for module in modules:
        for name, value in vars(module).items():
            if name in CODECS and name.endswith(("Request", "Response")):
                found[name] = value
    return found


THEIRS = theirs()
# Versions newer than the tables of the kafka-python release that is pinned.
NEWER = {"ApiVersionsRequest": {5}, "ApiVersionsResponse": {5}, "DeleteGroupsRequest": {3}, "DeleteGroupsResponse": {3}}
NEWER |= {"TxnOffsetCommitRequest": {6}, "TxnOffsetCommitResponse": {6}}
# Between nodes, and of operators to controllers; integration_tests/protocol has Kafka itself for an oracle.
OF_NODES = {52, 53, 54, 56, 58, 59, 62, 63, 64, 67, 70, 73, 80, 81, 82, 94}
NOT_THEIRS = {68, 69}  # that release has no groups of KIP-848
OTHER_NAMES = {"TxnOffsetCommitRequest": {"generation_id_or_member_epoch": "generation_id"}}


def as_theirs(message, cls, version):
    """The same message as one of kafka-python's containers."""
    values = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if not field.versions.has(version) or (field.tag is not None and value == default_of(message, field)):
            continue
        name = their_name(field, cls)
        if field.struct is not None and value is not None:
            inner = cls._struct.fields[name].data_class
            if field.kind == "array":
                value = [as_theirs(v, inner, version) for v in value]
            else:
                value = as_theirs(value, inner, version)
        elif field.kind == "uuid":
            value = uuid.UUID(bytes=value)
        elif name == "authorized_operations":
            value = bits(value)
        values[name] = value
    return cls(version=version, **values)


def assert_alike(message, other, version):
    for field in message.FIELDS:
        if not field.versions.has(version):
            continue
        name = their_name(field, type(other))
        mine, yours = getattr(message, field.name), getattr(other, name)
        if field.struct is not None and mine is not None and yours is not None:
            pairs = zip(mine, yours, strict=True) if field.kind == "array" else [(mine, yours)]
            for one, another in pairs:
                assert_alike(one, another, version)
        elif name == "authorized_operations" and yours is not None:
            assert bits(mine) == yours
        elif yours is not None or field.nullable.has(version):
            assert mine == (yours.bytes if isinstance(yours, uuid.UUID) else yours), field.name


def their_name(field, cls):
    other = OTHER_NAMES.get(cls.__name__, {}).get(field.name)
    if other is not None:
        return other
    operations = field.kind == "int32" and field.name.endswith("authorized_operations")
    return "authorized_operations" if operations and field.name not in cls._struct.fields else field.name


def bits(value):
    """Authorized operations are a set of bit numbers with them, and None when only bit 31 is set."""
    return {bit for bit in range(32) if value >> bit & 1}


def default_of(message, field):
    return getattr(type(message)(), field.name)


def common_versions(name):
    newest = THEIRS[name].max_version
    return [v for v in versions_of(CODECS[name]) if v <= newest]


def test_only_the_newest_versions_have_no_oracle():
    clients = [api for key, api in APIS.items() if key < 30000 and key not in OF_NODES | NOT_THEIRS]
    names = {f"{api.name}{side}" for api in clients for side in ("Request", "Response")}
    assert names <= set(THEIRS)
    for name in sorted(names):
        assert set(versions_of(CODECS[name])) - set(common_versions(name)) <= NEWER.get(name, set()), name


@pytest.mark.parametrize("name", THEIRS)
@settings(
    max_examples=6,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_bytes_are_equal_and_read_back_alike(name, data):
    codec, oracle = CODECS[name], THEIRS[name]
    for version in common_versions(name):
        message = data.draw(structs(codec.struct, version))
        if name == "ApiVersionsResponse":
            message.error_code = 0  # their decoder reads v0 after any other
        ours = encoded(codec, message, version)
        assert ours == bytes(as_theirs(message, oracle, version).encode()), version
        assert_alike(message, oracle[version].decode(ours), version)
