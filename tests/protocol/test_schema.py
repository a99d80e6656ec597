"""The message language: defaults, nulls, versions, tagged fields, and lengths around the sizes of a varint."""

import pytest

from isthmus.protocol.errors import DecodeError, EncodeError
from isthmus.protocol.messages import APIS, fetch, metadata, offset_fetch, produce
from isthmus.protocol.primitives import write_uvarint
from isthmus.protocol.schema import (
    Codec,
    Struct,
    Versions,
    array,
    batches,
    boolean,
    float64,
    int8,
    int16,
    int32,
    nested,
    octets,
    string,
    uint16,
    uint32,
    uuid,
)


class Point(Struct):
    x: int = int32()
    label: str = string("1+", ignorable=True)


class Everything(Struct):
    small: int = int8(default=-1)
    flag: bool = boolean()
    unsigned: int = uint16()
    wide: int = uint32()
    ratio: float = float64()
    point: Point | None = nested(Point, nullable="2+")
    plain: Point | None = nested(Point)
    ids: list[bytes] = array(uuid)
    names: list[str] | None = array(string, nullable="1+")
    blob: bytes | None = octets(nullable="1+", default=None)
    data: object = batches(nullable="1+")
    newer: int = int16("2+", default=7)
    forgiving: int = int16("2+", ignorable=True)
    tagged: str | None = string("2+", nullable="2+", default=None, tag=3)
    tagged_points: list[Point] = array(Point, "2+", tag=1)
    tagged_point: Point | None = nested(Point, "2+", tag=0)


CODEC = Codec(Everything, "Everything", "0-2", "2+")


def joined(message, version):
    return b"".join(CODEC.encode(message, version))


def message(**fields):
    return Everything(**{"point": Point(), "plain": Point(x=4), "blob": b"", "data": b"", **fields})


def test_versions_read_kafkas_notation():
    assert Versions.of("0-12") == (0, 12)
    assert Versions.of("4") == (4, 4)
    assert Versions.of("3+").has(3) and Versions.of("3+").has(9999) and not Versions.of("3+").has(2)
    assert not any(Versions.of("none").has(v) for v in (0, 1, 32767))


def test_a_message_takes_keywords_only_and_starts_with_the_defaults():
    request = produce.Request(acks=-1)
    assert (request.transactional_id, request.acks, request.timeout_ms, request.topic_data) == (None, -1, 0, [])
    assert produce.Request().topic_data is not produce.Request().topic_data
    assert fetch.Request().max_bytes == 0x7FFFFFFF
    with pytest.raises(TypeError):
        produce.Request(ack=1)
    with pytest.raises(TypeError):
        produce.Request("id")
    with pytest.raises(AttributeError):
        request.ack = 1


def test_equality_and_repr():
    assert Point(x=1) == Point(x=1) != Point(x=2)
    assert Point() != Everything()
    assert repr(Point(x=1, label="a")) == "test_schema.Point(x=1, label='a')"
    assert "<100 bytes>" in repr(produce.PartitionProduceData(records=memoryview(bytes(100))))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_kind_of_field_round_trips(version):
    sent = message(small=-128, flag=True, unsigned=65535, wide=4_000_000_000, ratio=0.5, ids=[bytes(16), b"x" * 16])
    sent.names, sent.blob, sent.data = ["", "ä"], b"blob", b"records"
    if version == 2:
        sent.newer, sent.forgiving, sent.tagged = -3, 5, "tag"
        sent.tagged_points, sent.tagged_point = [Point(x=1, label="one"), Point()], Point(x=-9)
    frame = joined(sent, version)
    assert CODEC.decode(frame, 0, version) == (sent, len(frame))
    assert CODEC.decode(bytearray(frame), 0, version) == (sent, len(frame))


@pytest.mark.parametrize("field", ["names", "blob", "data"])
def test_null_is_carried_where_the_version_allows_it_and_refused_elsewhere(field):
    for version in (1, 2):
        frame = joined(message(**{field: None}), version)
        assert getattr(CODEC.decode(frame, 0, version)[0], field) is None
    with pytest.raises(EncodeError, match=field):
        joined(message(**{field: None}), 0)


def test_a_struct_is_null_only_where_it_may_be():
    frame = joined(message(point=None), 2)
    assert CODEC.decode(frame, 0, 2)[0].point is None
    with pytest.raises(EncodeError, match="point"):
        joined(message(point=None), 1)
    with pytest.raises(EncodeError, match="plain"):
        joined(message(plain=None), 2)


class Holder(Struct):
    inner: Point = nested(Point, "1+")


def test_a_struct_that_may_not_be_null_is_at_its_defaults_unless_given():
    codec = Codec(Holder, "Holder", "0-1", "none")
    assert Holder().inner == Point() and Holder().inner is not Holder().inner
    assert codec.encode_bytes(Holder(), 0) == b""
    assert codec.decode(b"", 0, 0)[0] == Holder()
    with pytest.raises(EncodeError, match="cannot carry inner"):
        codec.encode(Holder(inner=Point(x=1)), 0)


def test_a_null_on_the_wire_where_none_may_be_is_a_decode_error():
    start = len(joined(message(), 0)) - 4 * 3  # names, blob and data, all empty
    assert CODEC.decode(joined(message(), 0)[:start] + bytes(12), 0, 0)[0].names == []
    with pytest.raises(DecodeError, match="names is null"):
        CODEC.decode(joined(message(), 0)[:start] + b"\xff\xff\xff\xff" + bytes(8), 0, 0)
    start = len(joined(message(), 1)) - 4 * 3
    assert CODEC.decode(joined(message(), 1)[:start] + b"\xff\xff\xff\xff" + bytes(8), 0, 1)[0].names is None
    with pytest.raises(DecodeError, match="topics is null"):
        APIS[3].decode_request(b"\xff\xff\xff\xff", 0, 0)
    assert APIS[3].decode_request(b"\xff\xff\xff\xff", 0, 1).topics is None


def test_a_field_that_the_version_lacks_is_refused_unless_ignorable_or_default():
    joined(message(forgiving=1), 1)
    with pytest.raises(EncodeError, match="Everything v1 cannot carry newer"):
        joined(message(newer=8), 1)
    with pytest.raises(EncodeError, match="cannot carry tagged_points"):
        joined(message(tagged_points=[Point()]), 1)
    with pytest.raises(EncodeError, match="cannot carry group_id"):
        APIS[9].encode_request(offset_fetch.Request(group_id="g"), 8)


def test_fields_of_other_versions_decode_to_their_defaults():
    decoded = CODEC.decode(joined(message(), 0), 0, 0)[0]
    assert (decoded.newer, decoded.forgiving, decoded.tagged, decoded.tagged_points) == (7, 0, None, [])
    assert decoded.plain.label == ""


def test_versions_outside_the_range_are_refused_by_name():
    with pytest.raises(DecodeError, match=r"ProduceRequest has versions 0-13, not 14"):
        APIS[0].decode_request(b"", 0, 14)
    with pytest.raises(EncodeError, match=r"not -1"):
        APIS[0].encode_response(produce.Response(), -1)


@pytest.mark.parametrize("bad", [{"small": 200}, {"wide": -1}, {"flag": "x" * 3, "unsigned": "3"}, {"names": [None]}])
def test_values_that_do_not_fit_are_encode_errors(bad):
    with pytest.raises(EncodeError, match="Everything v2"):
        joined(message(**bad), 2)
    with pytest.raises(EncodeError):
        joined(message(names=["x" * 40_000]), 1)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 128, 2046, 2047, 2048, 16382, 16383, 16384, 32_767])
def test_lengths_around_the_sizes_of_a_varint(size):
    sent = message(names=["n" * size, ""], blob=bytes(size), data=bytes(size), tagged="t" * size)
    frame = joined(sent, 2)
    assert CODEC.decode(frame, 0, 2) == (sent, len(frame))
    sent = metadata.Response(brokers=[metadata.MetadataResponseBroker(node_id=n) for n in range(size // 16)])
    frame = b"".join(APIS[3].encode_response(sent, 13))
    assert APIS[3].decode_response(frame, 0, 13) == sent


class Range:
    """Stands for a range of a file: it has a length and no bytes."""

    def __len__(self):
        return 300


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_placed_as_they_are_and_counted(version):
    parts = [memoryview(bytes(200)), Range(), b"tail"]

    def request(records):
        data = [produce.PartitionProduceData(index=1, records=records), produce.PartitionProduceData(index=2)]
        return produce.Request(topic_data=[produce.TopicProduceData(partition_data=data)])

    encoded = APIS[0].encode_request(request(parts), version)
    assert [part for part in encoded if part is parts[0] or part is parts[1] or part is parts[2]] == parts
    frame = b"".join(bytes(300) if isinstance(part, Range) else part for part in encoded)
    decoded = APIS[0].decode_request(frame, 0, version)
    assert decoded == request(bytes(500) + b"tail")
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and records.obj is frame
    alone = Range()
    assert any(part is alone for part in APIS[0].encode_request(request(alone), version))
    assert APIS[0].decode_request(b"".join(APIS[0].encode_request(request([]), version)), 0, version) == request(b"")


def test_a_message_without_records_is_one_part():
    assert len(APIS[3].encode_response(metadata.Response(), 12)) == 1


def test_apis_are_found_by_key_and_by_class():
    assert APIS[0] is produce.API is produce.Request.API is produce.Response.API
    assert APIS.get(4) is None and 4 not in APIS and 30000 in APIS
    assert sorted(APIS) == list(APIS)
    for key, api in APIS.items():
        assert api.key == key
        assert api.supports(api.max_version) and not api.supports(api.max_version + 1)


@pytest.mark.parametrize(("api", "version", "head", "element"), [
    (metadata, 0, b"", b"\0\0"),
    (fetch, 4, bytes(17), b"\0\0" + bytes(4)),
    (produce, 9, b"\0" + bytes(6), b"\1\1\0"),
    (offset_fetch, 1, b"\0\0" + b"\0\0\0\1" + b"\0\0", bytes(4)),
])  # fmt: skip
def test_tiny_things_in_one_request_are_bounded_in_number(api, version, head, element):
    flexible = api.API.request_header_version(version) == 2
    for count, refused in ((500_000, False), (500_001, True)):
        length = write_uvarint(count + 1) if flexible else count.to_bytes(4, "big")
        frame = head + length + element * count + bytes(16)
        if refused:
            with pytest.raises(DecodeError, match="more than 500000 things"):
                api.API.decode_request(frame, 0, version)
        elif api is not offset_fetch:  # whose array is not the first
            api.API.decode_request(frame, 0, version)


def test_strings_of_flexible_versions_are_as_long_as_others_at_most():
    codec = Codec(Point, "Point", "0-1", "1")
    for size in (32767, 32768):
        frame = bytes(4) + write_uvarint(size + 1) + b"x" * size + b"\0"
        if size == 32767:
            assert len(codec.decode(frame, 0, 1)[0].label) == size
        else:
            with pytest.raises(DecodeError, match="a string of 32768 bytes"):
                codec.decode(frame, 0, 1)


class Crowd(Struct):
    points: list[Point] = array(Point, is_kept=True)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_element_that_was_encoded_before_is_taken_as_it_is(version):
    crowd, point = (Codec(each, each.__name__, "0-2", "2+") for each in (Crowd, Point))
    kept = point.encode_bytes(Point(x=5), version)
    expected = crowd.encode_bytes(Crowd(points=[Point(x=4), Point(x=5), Point(x=6)]), version)
    assert crowd.encode_bytes(Crowd(points=[Point(x=4), kept, Point(x=6)]), version) == expected
    assert crowd.encode_bytes(Crowd(points=[kept] * 300), version) == crowd.encode_bytes(
        Crowd(points=[Point(x=5)] * 300), version
    )
