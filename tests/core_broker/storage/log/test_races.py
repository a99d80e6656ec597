"""A thread of the pool reads a segment while the loop takes its files away, at every moment that there is.

`RacingFiles` lets retention, compaction, a truncation or a deletion happen, as a whole, right before the n-th file call
of a reader. Whatever n is, the log stays online, and the answer is the one that a reader who came later gets.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.storage.log._ranges import NotCached
from isthmus.core_broker.storage.log.cold_reads import bring
from isthmus.core_broker.storage.log.index_window import IndexWindows
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.timestamps import SEARCHES_MAX, TimestampSearch
from isthmus.core_broker.storage.upkeep.cleaner import Cleaner, CleanerConfig
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import build_batch, iter_records
from isthmus.runtime import Runtime

from ..support import NOW_MS, BrokenFiles, append, batch, contents, drive, open_log, run

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

HOUR_MS = 3_600_000
CONFIG = LogConfig(
    cleanup_policy="compact,delete",
    segment_bytes=400,
    index_interval_bytes=0,
    retention_ms=HOUR_MS,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
BATCHES = 12
END = BATCHES * 2
RUNTIME = Runtime(random.Random(7), lambda: NOW_MS, lambda: 0)

Action = Callable[[Log], Any]


def stamp(offset: int) -> int:
    return NOW_MS - HOUR_MS + offset * 1000


def rows(first: int, keys: int) -> bytes:
    """Two records, their offsets told by their times and values."""
    return build_batch([(stamp(n), b"k%d" % (n % keys), b"value %d" % n, ()) for n in (first, first + 1)])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments, as a clean stop leaves it: of the active one too the index is in its file."""
    path = tmp_path_factory.mktemp("template")
    files = BrokenFiles()
    log = open_log(files, path, CONFIG)
    for number in range(BATCHES):
        append(log, rows(number * 2, 5))
    assert log.segments_count >= 3 and len(log.active_segment.offsets or ()) > 0
    run(log.close())
    files.close()
    return path


class RacingFiles(BrokenFiles):
    """`race(action, n)`: it happens right before the n-th call from now, or the first later one that is not locked."""

    def __init__(self) -> None:
        super().__init__()
        self.has_raced = False

    def race(self, action: Callable[[], Any], number: int, is_locked: Callable[[], bool]) -> None:
        first = len(self.calls)
        self.has_raced = False

        def trap(kind: str, path: str) -> None:
            if len(self.calls) - first > number and not is_locked():
                self.trap = lambda kind, path: None
                self.has_raced = True
                action()

        self.trap = trap

    def exists(self, path: str) -> bool:
        self._call("exists", path)
        return super().exists(path)

    def read(self, path: str) -> bytes:
        self._call("read", path)
        return super().read(path)

    def size(self, path: str) -> int:
        self._call("size", path)
        return super().size(path)


@dataclass
class Bench:
    files: RacingFiles
    log: Log
    cleaner: Cleaner


@pytest.fixture
def benches(template: Path, tmp_path: Path) -> Iterator[Callable[[], Bench]]:
    made: list[RacingFiles] = []

    def make() -> Bench:
        folder = tmp_path / str(len(made))
        shutil.copytree(template, folder)
        files = RacingFiles()
        made.append(files)
        log = open_log(files, folder, CONFIG, clean=True)
        assert log.closed_segments()[0].offsets is None  # its index is in its file
        return Bench(files, log, cleaner_of(log))

    yield make
    for files in made:
        files.close()


def cleaner_of(log: Log) -> Cleaner:
    async def save() -> None:
        return None

    steps = CleanerConfig(buffer_bytes=300)
    return Cleaner({("t", 0): log}, steps, RUNTIME, lambda key, log: log.log_end_offset, save)


# What happens beside a reader


def expire(until: int) -> Action:
    """Retention by time of all before an offset."""
    return lambda log: drive(log.enforce_retention(END, stamp(until) + HOUR_MS))


def delete_records(before: int) -> Action:
    return lambda log: log.advance_start(before)


def delete_records_and_files(log: Log) -> None:
    log.advance_start(21)
    drive(log.enforce_retention(END, NOW_MS - HOUR_MS))


def compact(log: Log) -> None:
    assert drive(cleaner_of(log).clean_filthiest())


def truncate(log: Log) -> None:
    drive(log.truncate_to(9))


def truncate_and_go_on(log: Log) -> None:
    """With other batches at other positions under the names of those cut off."""
    drive(log.truncate_to(7))
    for number in range(12):
        append(log, batch(1, timestamp=stamp(6) + number, size=30 + number))


def begin_anew(log: Log) -> None:
    drive(log.reset_to(0))
    for number in range(12):
        append(log, batch(1, timestamp=stamp(6) + number, size=40))


def roll(log: Log) -> None:
    log.rolling.roll(log.log_end_offset, NOW_MS)


def delete(log: Log) -> None:
    drive(log.leave())
    log.files.rmtree(log.directory)


ACTIONS: dict[str, Action] = {
    "retention of some segments": expire(12),
    "retention of all segments": expire(END + 10),
    "DeleteRecords": delete_records(15),
    "DeleteRecords and retention": delete_records_and_files,
    "compaction": compact,
    "truncation": truncate,
    "truncation, and other batches": truncate_and_go_on,
    "begun anew": begin_anew,
    "a segment closes": roll,
    "the topic is deleted": delete,
}


def happen(bench: Bench, action: str) -> None:
    async def alone() -> None:
        ACTIONS[action](bench.log)

    run(alone())


def outcome(answer: Callable[[], Any]) -> Any:
    """What it gives, or the code and, but for what is beyond the log, the text of its error."""
    try:
        return answer()
    except KafkaError as error:
        return error.code


def every_moment(
    benches: Callable[[], Bench], read: Callable[[Bench], Any], action: Action
) -> Iterator[tuple[int, Bench, Any]]:
    """(n, bench, answer) for each n, up to the first at which the reader was through before."""
    for number in range(500):
        bench = benches()
        bench.files.race(lambda bench=bench: action(bench.log), number, bench.log.locks.maintenance.locked)
        answer = outcome(lambda bench=bench: read(bench))
        bench.files.trap = lambda kind, path: None
        if not bench.files.has_raced:
            assert number > 0, "the reader has called nothing"
            return
        yield number, bench, answer
    raise AssertionError("the reader never ends")


# Searches by timestamp (ListOffsets)

SEARCHES: dict[str, Callable[[Bench], Any]] = {
    **{
        f"timestamp of offset {offset}": lambda bench, offset=offset: run(bench.log.offset_for_timestamp(stamp(offset)))
        for offset in (0, 5, 13, END - 1)
    },
    "largest timestamp": lambda bench: run(bench.log.max_timestamp_offset()),
}


def wrong_searches(benches: Callable[[], Bench], search: str, action: str) -> list[str]:
    wrong = []
    for number, bench, answer in every_moment(benches, SEARCHES[search], ACTIONS[action]):
        later = outcome(lambda bench=bench: SEARCHES[search](bench))
        is_gone = action == "the topic is deleted"
        if answer != later or (bench.log.failure is not None) != is_gone:
            wrong.append(f"before call {number}: {answer}, later {later}, {bench.log.failure}")
    return wrong


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_by_timestamp_answers_as_one_that_came_later(
    benches: Callable[[], Bench], search: str, action: str
) -> None:
    assert wrong_searches(benches, search, action) == []


@pytest.mark.parametrize("action", ["retention of some segments", "compaction"])
def test_control_a_search_that_does_not_look_back_fails(
    benches: Callable[[], Bench], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimestampSearch, "_has_changed", lambda *_: False)
    assert wrong_searches(benches, "timestamp of offset 5", action)


def test_searches_that_are_always_disturbed_end(benches: Callable[[], Bench]) -> None:
    bench = benches()
    searched = []

    async def disturbed(work: Callable[..., Any], *arguments: Any) -> Any:
        searched.append(work)
        bench.log.ranges.cuts += 1
        return work(*arguments)

    bench.files.run = disturbed  # type: ignore[method-assign]
    with pytest.raises(KafkaError) as caught:
        run(bench.log.offset_for_timestamp(stamp(5)))
    assert caught.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert len(searched) == SEARCHES_MAX


# Cold fetches: a position is looked for by the pool, then read again


def fetch(bench: Bench, offset: int) -> bytes | None:
    """What a fetch from an offset on is given; the index is read by the pool first."""
    log = bench.log
    log.ranges.windows = IndexWindows()
    try:
        part = log.read(offset, 400, may_wait=False)
    except NotCached as missing:
        run(bring(missing))
        bench.files.trap = lambda kind, path: None
        part = log.read(offset, 400)
    return b"".join(piece.read() for piece in part.ranges)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("offset", [1, 13])
def test_a_cold_fetch_reads_what_one_that_came_later_does(
    benches: Callable[[], Bench], offset: int, action: str
) -> None:
    for number, bench, answer in every_moment(benches, lambda bench: fetch(bench, offset), ACTIONS[action]):
        bench.log.ranges.windows = IndexWindows()
        later = outcome(lambda bench=bench: fetch(bench, offset))
        assert answer == later, f"before call {number}"
        assert (bench.log.failure is not None) == (action == "the topic is deleted")


@pytest.mark.parametrize("action", [name for name in ACTIONS if "truncation" not in name])
def test_ranges_that_were_given_out_stay_readable(benches: Callable[[], Bench], action: str) -> None:
    bench = benches()
    whole = contents(bench.log, 0)
    part = bench.log.read(0, 1 << 20)
    happen(bench, action)
    assert b"".join(each.read() for each in part.ranges) == whole


# The cleaner; compaction and deletion of the topic wait until its step is over

BESIDE_A_ROUND = [name for name in ACTIONS if name not in ("compaction", "the topic is deleted")]


def clean(bench: Bench) -> bool:
    return run(bench.cleaner.clean_filthiest())


Records = dict[int, tuple[bytes, bytes]]  # key and value, by offset


def is_compacted(whole: Records, left: Records, found: Records) -> bool:
    """Whether of what another action would leave only that is gone which had a later record of its key, maybe in what
    that action took: a truncation below the high watermark is nothing that compaction can reckon with."""
    later = {key: offset for offset, (key, _) in sorted((*whole.items(), *left.items()))}
    there, known = list(found.values()), [*whole.values(), *left.values()]  # no two records are the same
    return all(row in known for row in there) and all(
        row in there or later[row[0]] > offset for offset, row in left.items()
    )


def records(log: Log) -> Records:
    return {each.offset: (bytes(each.key), bytes(each.value)) for each in iter_records(contents(log))}


def wrong_rounds(benches: Callable[[], Bench], action: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    undisturbed = benches()
    whole = records(undisturbed.log)
    happen(undisturbed, action)
    left = records(undisturbed.log)
    wrong = []
    for number, bench, answer in every_moment(benches, clean, ACTIONS[action]):
        complaints = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        caplog.clear()
        found = records(bench.log)
        if complaints or answer is not True or bench.log.failure is not None or bench.cleaner.given_up:
            wrong.append(f"before call {number}: {answer}, {bench.log.failure}, {complaints}")
        elif not is_compacted(whole, left, found):
            wrong.append(f"before call {number}: {found}, where {left} was left")
        elif [each for each in Path(bench.log.directory).iterdir() if each.suffix in (".cleaned", ".swap")]:
            wrong.append(f"before call {number}: files of the round are left")
    return wrong


@pytest.mark.parametrize("action", BESIDE_A_ROUND)
def test_a_round_of_compaction_ends_in_peace(
    benches: Callable[[], Bench], action: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert wrong_rounds(benches, action, caplog) == []


def test_control_a_round_that_tells_what_retention_took_as_an_error_is_seen(
    benches: Callable[[], Bench], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cleaner, "_is_disturbed", lambda *_: False)
    assert wrong_rounds(benches, "retention of some segments", caplog)
