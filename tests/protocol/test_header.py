"""Headers that clients write and read, and frames around bodies."""

import pytest

from isthmus.protocol.errors import DecodeError
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import APIS
from tests.protocol.frames import decode_request_header, frame_response


@pytest.mark.parametrize("client_id", [None, "", "kcat", "ü" * 40])
@pytest.mark.parametrize("version", [3, 9])
def test_request_header_has_the_layout_of_its_version(client_id, version):
    header = RequestHeader(0, version, 77, client_id)
    frame = b"".join(frame_request(header, [b"body"]))[4:]
    assert decode_request_header(frame) == (header, len(frame) - len(b"body"))


def test_frames_count_their_parts_and_leave_them_as_they_are():
    records = memoryview(bytes(1000))
    frame = frame_request(RequestHeader(0, 9, 5, "p"), [b"head", records])
    assert frame[2] is records
    assert int.from_bytes(b"".join(frame)[:4], "big") == len(b"".join(frame)) - 4


@pytest.mark.parametrize("version", [0, 1])
def test_response_header_is_read_in_both_versions(version):
    encoded = frame_response(123, version, [])[4:]
    assert decode_response_header(encoded, version) == (123, 4 + version)
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_response_header(encoded[:end], version)


def test_api_versions_answers_with_header_v0_in_every_version():
    assert [APIS[18].response_header_version(v) for v in range(6)] == [0] * 6
    assert [APIS[18].request_header_version(v) for v in range(6)] == [1, 1, 1, 2, 2, 2]
    assert [APIS[0].response_header_version(v) for v in (8, 9)] == [0, 1]
