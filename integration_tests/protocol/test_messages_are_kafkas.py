"""Every message and record in every version, against the class that Kafka generates from its own definition.

Ours and Kafka's must agree on the versions there are, on the names, types, order, nulls and defaults of fields, and on
what a version that lacks a field does with it: leaves it out, or refuses the message.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings

from isthmus.protocol.errors import EncodeError
from isthmus.protocol.primitives import uuid_to_str
from isthmus.protocol.schema import Codec, Field, Struct
from tests.protocol.samples import CODECS, element, encoded, structs

from .kafkas_messages import ask, class_of

# Not Kafka's.
OTHERS = (
    *("MirrorAppendRequest", "MirrorAppendResponse", "MirrorLinkRecord"),
    *("RaiseLeaderEpochRequest", "RaiseLeaderEpochResponse"),
)
KAFKAS = [codec for name, codec in CODECS.items() if name not in OTHERS]
# Kafka names Produce v0-2 to clients and refuses them; the newest version of InitProducerId is not released yet.
OTHER_VERSIONS = {
    **dict.fromkeys(("ProduceRequest", "ProduceResponse"), (3, 13)),
    **dict.fromkeys(("InitProducerIdRequest", "InitProducerIdResponse"), (0, 6)),
}
# None by default, where Kafka has an empty text that its own code never leaves there.
OTHER_DEFAULTS = (
    *("AlterPartitionReassignmentsResponse", "ListPartitionReassignmentsResponse"),
    *("RegisterBrokerRecord", "GroupMetadataValue"),
)
# The leader's address is left out of versions without it, which Kafka's code does before its class would refuse it.
LEFT_OUT = "node_endpoints."
LEAVE_IT_OUT = (
    *("FetchResponse", "FetchSnapshotResponse", "VoteResponse"),
    *("BeginQuorumEpochResponse", "EndQuorumEpochResponse"),
)
FEW = settings(max_examples=5, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


def versions(codec: Codec) -> range:
    """Those that Kafka has, too."""
    low, _ = OTHER_VERSIONS.get(codec.name, codec.versions)
    return range(low, codec.versions.high + 1)


def test_the_versions_of_each_and_what_may_be_null():
    wrong: dict[str, Any] = {}
    for codec, answer in zip(KAFKAS, ask([{"class": class_of(codec)} for codec in KAFKAS]), strict=True):
        if (answer["low"], answer["high"]) != OTHER_VERSIONS.get(codec.name, tuple(codec.versions)):
            wrong[codec.name] = (codec.versions, answer)
        for version in versions(codec):
            ours = list(nullable(codec.struct, version))
            theirs = [name.replace("_", "") for name in answer["nullable"][str(version)]]
            if sorted(ours) != sorted(theirs):
                wrong[f"{codec.name} v{version}"] = (ours, theirs)
    assert wrong == {}


def nullable(cls: type[Struct], version: int, path: str = "") -> Iterator[str]:
    """The paths of fields that may be null, without underscores."""
    for field in cls.FIELDS:
        if field.versions.has(version):
            name = path + field.name.replace("_", "")
            if field.nullable.has(version):
                yield name
            if field.struct is not None:
                yield from nullable(field.struct, version, f"{name}.")


def test_new_messages_have_the_same_defaults():
    cases = [(each, version) for each in KAFKAS if each.name not in OTHER_DEFAULTS for version in versions(each)]
    answers = ask([{"class": class_of(codec), "write": version} for codec, version in cases])
    wrong: dict[str, Any] = {}
    for (codec, version), answer in zip(cases, answers, strict=True):
        ours = written(codec, codec.struct(), version)
        if ours != answer.get("bytes"):
            wrong[f"{codec.name} v{version}"] = (ours, answer)
    assert wrong == {}


def test_messages_are_read_and_written_alike():
    cases = [
        (codec, version, each) for codec in KAFKAS for version in versions(codec) for each in drawn(codec, version)
    ]
    questions = [
        {"class": class_of(codec), "bytes": encoded(codec, message, version).hex(), "read": version, "write": version}
        for codec, version, message in cases
    ]
    wrong: dict[str, Any] = {}
    for (codec, version, message), question, answer in zip(cases, questions, ask(questions), strict=True):
        expected = {"left": 0, "json": plain(message, version), "bytes": question["bytes"]}
        if expected != answer | {"json": without_case(answer["json"])}:
            wrong[f"{codec.name} v{version}"] = (expected, answer)
    assert wrong == {}


def test_versions_without_a_field_refuse_it_or_leave_it_out_alike():
    """A message in which one field is set, read in the newest version that has it, and written in all."""
    cases, questions = [], []
    for codec in KAFKAS:
        for name, message, read in with_one_field(codec):
            given_bytes = encoded(codec, message, read).hex()
            for write in versions(codec):
                cases.append((codec, name, message, write))
                questions.append({"class": class_of(codec), "bytes": given_bytes, "read": read, "write": write})
    wrong: dict[str, Any] = {}
    for (codec, name, message, version), answer in zip(cases, ask(questions), strict=True):
        ours = written(codec, message, version)
        theirs = answer.get("bytes")
        if theirs is None and codec.name in LEAVE_IT_OUT and name.startswith(LEFT_OUT):
            theirs = written(codec, codec.struct(), version)
        if ours != theirs:
            wrong[f"{codec.name}.{name} in v{version}"] = (ours, answer)
    assert wrong == {}


def with_one_field(codec: Codec) -> Iterator[tuple[str, Struct, int]]:
    """For each field, also of structs in structs: its path, a message that has it, and its newest version."""

    def inside(cls: type[Struct], newest: int) -> Iterator[tuple[str, Struct, int]]:
        records = {field.name: b"" for field in cls.FIELDS if field.kind == "records"}  # whose default may be refused
        for field in cls.FIELDS:
            version = min(newest, field.versions.high)
            if field.struct is None:
                value = element(field, version)
                value = [value] if field.kind == "array" else value
                yield field.name, cls(**records | {field.name: value}), version
            else:
                for name, inner, high in inside(field.struct, version):
                    value = [inner] if field.kind == "array" else inner
                    yield f"{field.name}.{name}", cls(**records | {field.name: value}), high

    return inside(codec.struct, codec.versions.high)


def drawn(codec: Codec, version: int) -> list[Struct]:
    found: list[Struct] = []

    @FEW
    @given(structs(codec.struct, version))
    def collect(message: Struct) -> None:
        found.append(message)

    collect()
    return found


def written(codec: Codec, message: Struct, version: int) -> str | None:
    """In hex, or None when the version cannot carry it."""
    try:
        return encoded(codec, message, version).hex()
    except EncodeError:
        return None


def plain(message: Struct, version: int) -> dict[str, Any]:
    """The fields of a message as Kafka's JSON has them, names without case, records by their size."""
    found = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.versions.has(version) and not (field.tag is not None and is_default(field, value)):
            name = f"{field.name}size_in_bytes" if field.kind == "records" and value is not None else field.name
            found[name.replace("_", "")] = _plain(field, value, version)
    return found


def is_default(field: Field, value: Any) -> bool:
    if field.kind == "struct" and field.default == ():
        assert field.struct is not None
        return bool(value == field.struct())
    return bool(value == ([] if field.default == () else field.default))


def _plain(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    match field.kind:
        case "struct":
            return plain(value, version)
        case "array" if field.struct is not None:
            return [plain(each, version) for each in value]
        case "array":
            assert field.of is not None
            return [_plain(field.of, each, version) for each in value]
        case "uuid":
            return uuid_to_str(value)
        case "bytes":
            return base64.b64encode(value).decode()
        case "records":
            return len(value)
    return value


def without_case(value: Any) -> Any:
    if isinstance(value, dict):
        return {name.lower(): without_case(each) for name, each in value.items()}
    return [without_case(each) for each in value] if isinstance(value, list) else value
