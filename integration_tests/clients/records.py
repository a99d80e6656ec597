"""The records that every client writes and reads, and the topics they go to.

What a console can carry is written by everybody; `BINARY` holds what only a library can send.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_600_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Rec:
    """One record as a client hands it over. timestamp_ms 0: the clock of the producer."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0

    def __repr__(self) -> str:
        value = self.value if self.value is None or len(self.value) < 60 else (len(self.value), self.value[:20])
        return f"({self.key!r}, {value!r}, {self.headers!r}, {self.timestamp_ms})"


def _hardly_compressible(size: int) -> bytes:
    """Text of many blocks of snappy's and lz4's framings."""
    lines = (hashlib.sha256(b"%d" % n).hexdigest().encode() for n in range(size // 64))
    return b"".join(lines)


TEXT = (
    Rec(None, b"null key", (), BASE_MS + 1),
    Rec(b"null value", None, (), BASE_MS + 2),
    Rec(b"", b"empty key", (), BASE_MS + 3),
    Rec(b"empty value", b"", (), BASE_MS + 3),
    Rec(b"headers", b"v", (("one", b"1"), ("twice", b"a"), ("twice", b"b"), ("empty", b""), ("null", None))),
    Rec(None, b"a header, no key", (("only", b"x"),), BASE_MS - 5_000),
    Rec(b"a header, no value", None, (("only", b"x" * 300),), BASE_MS + 86_400_000 * 30),
    Rec("ключ".encode(), "значение 值 ✈".encode(), (("имя", "Größe".encode()),), BASE_MS + 4),
    Rec(b"repetitive", b"flight " * 10_000, (), BASE_MS + 5),
    Rec(b"blocks", _hardly_compressible(200_000), (), BASE_MS + 6),
    *(Rec(b"plane-%d" % (n % 7), b'{"row": %d, "kind": "departed"}' % n, (), BASE_MS + n) for n in range(100)),
)
BINARY = (
    Rec(bytes(range(256)), bytes(range(255, -1, -1)), (("bytes", b"\0\xff\n\r\t\x80"),), BASE_MS + 7),
    Rec(b"\n\0\r\n", b"\x00" * 5, (), BASE_MS + 8),
)


def records_of(producer: str, codec: str) -> tuple[Rec, ...]:
    """The first one names its topic. Java's console takes neither timestamps nor bytes that are no text, and
    kafka-python refuses to send a header without a value.
    """
    first = Rec(b"first", b"plain", (("topic", topic_of(producer, codec).encode()),), BASE_MS)
    if producer == "java":
        return tuple(Rec(each.key, each.value, each.headers) for each in (first, *TEXT))
    fitting = [
        Rec(each.key, each.value, each.headers, each.timestamp_ms or BASE_MS) for each in (first, *TEXT, *BINARY)
    ]
    if producer == "kafka-python":
        fitting = [replace(each, headers=tuple((k, v or b"") for k, v in each.headers)) for each in fitting]
    return tuple(fitting)


def topic_of(producer: str, codec: str) -> str:
    return f"matrix.{producer}.{codec}"


def create_topics(bootstrap: str, topics: list[str], partitions: int = 1) -> None:
    """Topics that keep records of any age, of as many replicas as the brokers make by default."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, -1, config={"retention.ms": "-1"}) for name in topics])
    for future in made.values():
        future.result(20)
