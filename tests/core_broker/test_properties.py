"""Java's properties files, as java.util.Properties reads them."""

import pytest

from isthmus.core_broker.option import ConfigError
from isthmus.core_broker.properties import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# one\n! two\n\n  \t\na=1\n", {"a": "1"}),
        ("a=1\r\nb = 2 \rc:3\nd 4\ne\t:\t5\nf\n", {"a": "1", "b": "2 ", "c": "3", "d": "4", "e": "5", "f": ""}),
        ("a=b=c:d e\n", {"a": "b=c:d e"}),
        ("a=1,\\\n    2\\\\\nb=3\n", {"a": "1,2\\", "b": "3"}),
        ("a=1\\\n#2\n", {"a": "1#2"}),  # a line that goes on is no comment
        ("a\\=b\\ c=\\u0041\\tx\\q\n", {"a=b c": "A\txq"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x\n", {"": "x"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_a_file_is_read_as_by_java(text, expected):
    assert parse(text, "f") == expected


def test_a_wrong_escape_is_named_with_its_line():
    with pytest.raises(ConfigError, match=r"f:2: \\u must be followed by four"):
        parse("a=1\nb=\\u12\n", "f")
