"""Every message in every version: what is encoded is decoded again, and bad bytes are a DecodeError, nothing else."""

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.protocol.errors import DecodeError
from isthmus.protocol.messages import APIS
from isthmus.protocol.primitives import write_uvarint

from .samples import CODECS, encoded, filled, structs, versions_of

QUICK = settings(
    max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("name", CODECS)
@QUICK
@given(data=st.data())
def test_every_version_decodes_what_it_encoded(name, data):
    codec = CODECS[name]
    for version in versions_of(codec):
        message = data.draw(structs(codec.struct, version))
        frame = encoded(codec, message, version)
        assert codec.decode(frame, 0, version) == (message, len(frame))
        assert codec.decode(memoryview(b"head" + frame), 4, version) == (message, len(frame) + 4)


@pytest.mark.parametrize("name", CODECS)
@settings(QUICK, max_examples=3)
@given(data=st.data())
def test_truncated_frames_are_decode_errors(name, data):
    codec = CODECS[name]
    for version in {codec.versions.low, codec.versions.high}:
        frame = encoded(codec, data.draw(structs(codec.struct, version)), version)
        for end in range(len(frame)):
            with pytest.raises(DecodeError):
                codec.decode(frame[:end], 0, version)


@pytest.mark.parametrize("name", CODECS)
def test_mutated_frames_are_decode_errors_or_messages(name):
    codec = CODECS[name]
    chance = random.Random(name)
    for version in versions_of(codec):
        frame = encoded(codec, filled(codec.struct, version), version)
        for _ in range(60):
            mutated = bytearray(frame)
            for _ in range(chance.randint(1, 4)):
                if mutated:
                    mutated[chance.randrange(len(mutated))] = chance.choice(
                        [0, 1, 0x7F, 0x80, 0xFF, chance.getrandbits(8)]
                    )
            try:
                codec.decode(bytes(mutated), 0, version)
            except DecodeError:
                pass


@pytest.mark.parametrize("name", CODECS)
def test_random_bytes_are_decode_errors_or_messages(name):
    codec = CODECS[name]
    chance = random.Random(name)
    for version in versions_of(codec):
        for _ in range(30):
            try:
                codec.decode(chance.randbytes(chance.randint(0, 60)), 0, version)
            except DecodeError:
                pass


def test_a_hostile_count_allocates_nothing():
    produce = APIS[0]
    started = time.perf_counter()
    for version, frame in [
        (3, b"\xff\xff\0\1\0\0\0\0\x7f\xff\xff\xff"),
        (9, b"\0\0\1\0\0\0\0\xff\xff\xff\xff\x0f"),
        (9, b"\0\0\1\0\0\0\0\2\2t\2\0\0\0\0\0\xff\xff\xff\xff\x0f"),
    ]:
        with pytest.raises(DecodeError):
            produce.decode_request(frame + bytes(64), 0, version)
    with pytest.raises(DecodeError, match="more replica_nodes than bytes"):
        APIS[3].decode_response(
            b"\0\0\0\0\0\0\0\1\0\0\0\1t\0\0\0\1\0\0\0\0\0\0\0\0\0\0\x7f\xff\xff\xff" + bytes(9), 0, 0
        )
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("name", [name for name, codec in CODECS.items() if codec.flexible.has(codec.versions.high)])
def test_unknown_tagged_fields_are_skipped_and_size_checked(name):
    codec = CODECS[name]
    version = codec.versions.high
    message = codec.struct()
    frame = encoded(codec, message, version)
    if frame[-1] != 0:
        pytest.skip("its defaults are tagged")
    tags = b"\x02" + write_uvarint(1000) + b"\x03abc" + write_uvarint(1001) + b"\0"
    assert codec.decode(frame[:-1] + tags, 0, version) == (message, len(frame) - 1 + len(tags))
    for bad in (tags[:-1], b"\x01" + write_uvarint(1000) + b"\x7fabc", b"\xff\xff\x03"):
        with pytest.raises(DecodeError):
            codec.decode(frame[:-1] + bad, 0, version)


def test_every_nested_struct_skips_unknown_tagged_fields():
    produce = APIS[0].request.struct
    frame = b"\0\0\1\0\0\0\0\2\2t\2\0\0\0\5\1" + b"\1\x63\2ab" * 3
    message = APIS[0].decode_request(frame, 0, 9)
    assert isinstance(message, produce)
    assert message.topic_data[0].partition_data[0].index == 5


def test_a_known_tagged_field_must_have_the_size_it_says():
    fetch = APIS[1]
    frame = bytearray(encoded(fetch.request, fetch.request.struct(cluster_id="abc"), 12))
    at = frame.index(b"\x04abc")
    frame[at - 1] += 1
    with pytest.raises(DecodeError):
        fetch.decode_request(bytes(frame) + bytes(8), 0, 12)
