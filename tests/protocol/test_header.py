"""Request and response headers, and frames around bodies."""

import pytest

from isthmus.protocol.errors import DecodeError
from isthmus.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    frame_request,
    frame_response,
)
from isthmus.protocol.messages import APIS


@pytest.mark.parametrize("client_id", [None, "", "kcat", "ü" * 40])
@pytest.mark.parametrize("version", [3, 9])
def test_request_header_round_trips_in_both_versions(client_id, version):
    header = RequestHeader(0, version, 77, client_id)
    encoded = encode_request_header(header)
    assert decode_request_header(encoded + b"body") == (header, len(encoded))
    assert decode_request_header(memoryview(encoded)) == (header, len(encoded))


def test_flexible_header_skips_unknown_tagged_fields():
    header = RequestHeader(18, 3, 1, "x")
    encoded = encode_request_header(header)[:-1] + b"\x02\x05\x01z\x63\x03abc"
    assert decode_request_header(encoded) == (header, len(encoded))


def test_header_of_an_unknown_key_still_gives_key_version_and_correlation_id():
    decoded, _ = decode_request_header(b"\x03\xe7\x00\x09\x00\x00\x00\x05\xff\xff")
    assert decoded == RequestHeader(999, 9, 5, None)


def test_every_truncated_header_is_a_decode_error():
    encoded = encode_request_header(RequestHeader(3, 12, 9, "client"))
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_request_header(encoded[:end])
    with pytest.raises(DecodeError):
        decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x05\x00\x02\xff\xfe")  # a client id that is not UTF-8


def test_frames_count_their_parts_and_leave_them_as_they_are():
    records = memoryview(bytes(1000))
    frame = frame_request(RequestHeader(0, 9, 5, "p"), [b"head", records])
    assert frame[2] is records
    assert int.from_bytes(b"".join(frame)[:4], "big") == len(b"".join(frame)) - 4
    frame = frame_response(5, 1, [b"head", records])
    assert b"".join(frame)[:9] == (1000 + 4 + 5).to_bytes(4, "big") + b"\0\0\0\x05\0"


@pytest.mark.parametrize("version", [0, 1])
def test_response_header_round_trips(version):
    encoded = encode_response_header(123, version)
    assert decode_response_header(encoded, version) == (123, 4 + version)
    with pytest.raises(DecodeError):
        decode_response_header(encoded[:-1], version)


def test_api_versions_answers_with_header_v0_in_every_version():
    assert [APIS[18].response_header_version(v) for v in range(6)] == [0] * 6
    assert [APIS[18].request_header_version(v) for v in range(6)] == [1, 1, 1, 2, 2, 2]
    assert [APIS[0].response_header_version(v) for v in (8, 9)] == [0, 1]
