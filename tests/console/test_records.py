"""A record as a line: text as it is; bytes that are none as text for people, and unchanged for programs."""

from __future__ import annotations

import json

import pytest

from isthmus.client import TopicPartition
from isthmus.console.records import Lines, Sent, header_of, json_line, long_line, short_line
from isthmus.deploy.errors import DeployError
from isthmus.protocol.records import Record

TP = TopicPartition("t", 2)
BINARY, AS_BASE64 = b"\x80\xff v", "gP8gdg=="


def as_json(key: bytes | None, value: bytes | memoryview | None, *headers: tuple[str, bytes | None]) -> dict:
    row = json.loads(json_line(TP, Record(5, 1_000, key, value, headers)))
    assert [row.pop(name) for name in ("topic", "partition", "offset", "timestamp_ms")] == ["t", 2, 5, 1_000]
    return row


def test_text_is_told_as_it_is():
    assert as_json("ü".encode(), b"") == {"key": "ü", "value": "", "headers": []}
    assert as_json(None, None, ("a", b"1"), ("a", None)) == {
        "key": None, "value": None, "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": None}],
    }  # fmt: skip


def test_bytes_that_are_no_text_are_base64_in_json():
    assert as_json(BINARY, memoryview(BINARY), ("a", BINARY)) == {
        "key_base64": AS_BASE64, "value_base64": AS_BASE64, "headers": [{"name": "a", "value_base64": AS_BASE64}],
    }  # fmt: skip
    assert as_json(b"text", b"\xed\xa0\x80") == {"key": "text", "value_base64": "7aCA", "headers": []}  # a surrogate


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [(None, b"v", "v"), (b"k", b"v", "k\tv"), (b"", None, "\t"), (BINARY, BINARY, "\\x80\\xff v\t\\x80\\xff v")],
)
def test_a_line_for_people(key, value, line):
    assert short_line(TP, Record(5, 1_000, key, value, ())) == line


def test_a_null_value_is_printed_as_it_is_asked_for():
    record = Record(5, 1_000, b"k", None, (("a", b"1"), ("b", None)))
    assert short_line(TP, record, null="NULL") == "k\tNULL"
    where, _, *rest = long_line(TP, record, null="NULL").split("\t")
    assert (where, rest) == ("2:5", ["a=1,b=", "k", "NULL"])


def test_headers_stay_in_the_line_and_are_cut():
    """Dead letters have stack traces."""
    record = Record(5, 1_000, b"k", b"v", (("trace", b"in\n\tdef f\xff" + b"x" * 500),))
    _, _, headers, key, value = long_line(TP, record).split("\t")
    assert headers.startswith("trace=in\\n\\tdef f\\xffx") and headers.endswith("x… and 113 characters more")
    assert "\n" not in headers and (key, value) == ("k", "v")


def test_lines_become_records():
    headers = [header_of("trace=a=b")]
    assert headers == [("trace", b"a=b")]
    lines = Lines(separator=";", null="-", headers=headers)
    assert lines.read(b"k;v;w", 1) == Sent(b"v;w", b"k", headers)
    assert lines.read(b"k;-", 2) == Sent(None, b"k", headers)
    assert lines.read(b"-;v", 3) == Sent(b"v", b"-", headers)
    assert Lines().read(b"-", 1) == Sent(b"-")
    with pytest.raises(DeployError, match="line 4 has no ';'"):
        lines.read(b"kv", 4)
    for wrong in ("trace", "=a"):
        with pytest.raises(DeployError, match=f"--header {wrong}: write it as name=value"):
            header_of(wrong)


@pytest.mark.parametrize(("key", "value"), [(b"k", b"v"), (None, None), (BINARY, BINARY), (b"", b"")])
def test_a_record_that_was_consumed_is_produced_as_it_was(key: bytes | None, value: bytes | None):
    headers = (("a", b"1"), ("a", None), ("b", BINARY))
    line = json_line(TP, Record(5, 1_000, key, value, headers))
    assert Lines(as_records=True).read(line.encode(), 1) == Sent(value, key, list(headers), 2, 1_000)


def test_a_dead_letter_goes_where_it_was_without_the_reason():
    died = [(f"__streams.errors.{name}", value) for name, value in (("topic", b"pays"), ("partition", b"1"))]
    letter = json_line(TP, Record(5, 1_000, b"k", BINARY, (("mine", b"1"), *died))).encode()
    assert Lines(True, died_in="pays").read(letter, 1) == Sent(BINARY, b"k", [("mine", b"1")], 1, 1_000)
    with pytest.raises(
        DeployError, match=r"line 7 .*: it is a dead letter of topic pays, not of orders: send it there"
    ):
        Lines(True, died_in="orders").read(letter, 7)
    with pytest.raises(DeployError, match=r"it is no dead letter: it has no header __streams.errors.topic"):
        Lines(True, died_in="pays").read(b'{"value": "x"}', 1)


def test_a_record_may_leave_out_what_it_has_not():
    assert Lines(as_records=True, headers=[("z", b"1")]).read(b"{}", 1) == Sent(None, None, [("z", b"1")])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nothing", "Expecting value"),
        ("[1]", "it is no JSON object"),
        ('{"kye": "k"}', "there is no field kye, but key, "),
        ('{"key": 5}', "its key is not text"),
        ('{"value_base64": "?"}', "base64"),
        ('{"partition": -1}', "-1 is neither a partition nor a time"),
        ('{"headers": [1]}', "a header is "),
        ('{"headers": {"a": "b"}}', "a header is "),
    ],
)
def test_what_is_no_record_is_named_with_its_line(line: str, why: str):
    with pytest.raises(DeployError, match=f"line 7 is no record as `isthmus consume --json` prints it: .*{why}"):
        Lines(as_records=True).read(line.encode(), 7)
