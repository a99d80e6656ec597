"""What read_committed leaves out, by hand and against a model: any log, from any offset, in answers of any size."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from isthmus.protocol.isolation import without_aborted
from isthmus.protocol.records import BatchBuilder, iter_records, walk


def batch(offsets: Iterable[int], producer: int = -1, control: bool = False) -> bytes:
    values = list(offsets)
    builder = BatchBuilder(
        max_bytes=1 << 20,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        transactional=producer >= 0,
        control=control,
        base_offset=min(values),
    )
    for value in values:
        builder.append(0, b"\0\0\0\0" if control else None, b"%d" % value)
    return builder.build()


def kept(data: bytes, *aborted: tuple[int, int]) -> list[int]:
    return [record.offset for record in iter_records(without_aborted(memoryview(data), aborted))]


def test_aborted_transactions_are_left_out_and_all_else_is_kept() -> None:
    data = b"".join(
        [
            batch([0, 1], producer=7),  # aborted at 6
            batch([2, 3]),
            batch([4], producer=8),  # committed
            batch([5], producer=7),
            batch([6], producer=7, control=True),
            batch([7], producer=7),  # of its next transaction, committed
            batch([8], producer=8, control=True),
        ]
    )
    assert kept(data, (7, 0)) == [2, 3, 4, 7]
    assert kept(data) == [0, 1, 2, 3, 4, 5, 7]


def test_a_producer_that_aborted_twice_is_left_out_twice() -> None:
    data = b"".join(
        [
            batch([0], producer=7),
            batch([1], producer=7, control=True),
            batch([2], producer=7),
            batch([3], producer=7, control=True),
            batch([4], producer=7),
        ]
    )
    assert kept(data, (7, 2), (7, 0)) == [4]


def test_what_is_kept_in_one_piece_is_not_copied() -> None:
    data = memoryview(batch([0]) + batch([1]) + batch([2], producer=7))
    assert without_aborted(data, ()).obj is data.obj
    assert without_aborted(data, ((7, 2),)).obj is data.obj
    assert kept(bytes(data), (7, 2)) == [0, 1]


def test_everything_may_be_aborted() -> None:
    assert bytes(without_aborted(memoryview(batch([3, 4], producer=7)), ((7, 0),))) == b""


class Model:
    """A log, and which of its records count."""

    def __init__(self, random: Random) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self.counting: list[int] = []
        self.end = 0
        opened: dict[int, tuple[int, list[int]]] = {}  # producer -> first offset, offsets
        for _ in range(random.randrange(5, 60)):
            producer = random.choice([-1, 1, 2, 3])
            if producer in opened and random.random() < 0.3:
                first, offsets = opened.pop(producer)
                if random.random() < 0.5:
                    self.aborted.append((producer, first, self.end))
                else:
                    self.counting += offsets
                self._append(batch([self.end], producer, control=True))
                continue
            offsets = list(range(self.end, self.end + random.randrange(1, 4)))
            if producer < 0:
                self.counting += offsets
            else:
                opened.setdefault(producer, (self.end, []))[1].extend(offsets)
            self._append(batch(offsets, producer))
        self.last_stable_offset = min((first for first, _ in opened.values()), default=self.end)

    def _append(self, data: bytes) -> None:
        [(_, header)] = walk(data)
        self.batches.append(data)
        self.end = header.next_offset

    def compact(self, random: Random) -> None:
        """Take away what compaction may: aborted data in part or as a whole, and any of the records that count."""
        left = []
        for data in self.batches:
            [(_, header)] = walk(data)
            if header.is_control or random.random() < 0.7:
                left.append(data)
            else:
                gone = range(header.base_offset, header.next_offset)
                self.counting = [offset for offset in self.counting if offset not in gone]
        self.batches = left

    def fetch(self, offset: int, most: int) -> tuple[bytes, list[tuple[int, int]]]:
        """As a broker answers: whole batches from the one with the offset on, up to the last stable offset, and the
        aborted transactions that overlap with them."""
        some = []
        for data in self.batches:
            [(_, header)] = walk(data)
            if header.last_offset >= offset and header.next_offset <= self.last_stable_offset and len(some) < most:
                some.append(data)
        if not some:
            return b"", []
        [(_, last)] = walk(some[-1])
        overlap = [(p, first) for p, first, end in self.aborted if first <= last.last_offset and end >= offset]
        return b"".join(some), overlap


@pytest.mark.parametrize("seed", range(60))
def test_any_log_read_from_any_offset_in_answers_of_any_size_gives_what_counts(seed: int) -> None:
    random = Random(seed)
    model = Model(random)
    if seed % 2:
        model.compact(random)
    wanted = [offset for offset in sorted(model.counting) if offset < model.last_stable_offset]
    for begin in range(model.end):
        most = random.randrange(1, 8)
        found: list[int] = []
        position = begin
        while True:
            data, aborted = model.fetch(position, most)
            if not data:
                break
            random.shuffle(aborted)
            found += [offset for offset in kept(data, *aborted) if offset >= position]
            position = max(header.next_offset for _, header in walk(data))
        assert found == [offset for offset in wanted if offset >= begin]
