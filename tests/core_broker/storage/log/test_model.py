"""The log against a list of batches, through any history of appends, cuts, starts and stops."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.records import decode_batch

from ..support import NOW_MS, BrokenFiles, append, at, batch, contents, drive

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=64, retention_ms=-1)


class Machine(RuleBasedStateMachine):
    """`batches`: (base offset, last offset, epoch, bytes), all that the log must hold, below `start` perhaps more."""

    @initialize()
    def begin(self) -> None:
        self.path = Path(tempfile.mkdtemp())
        self.files = BrokenFiles()
        self.log = self.open()
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = self.end = self.epoch = 0
        self.sequences: dict[int, list[tuple[int, int, int]]] = {}  # producer -> (offset, sequence, count)

    def open(self, **more: Any) -> Log:
        return drive(open_log(self.files, f"{self.path}/t-0", CONFIG, wall_ms=NOW_MS, **more))

    def teardown(self) -> None:
        if hasattr(self, "files"):
            self.files.close()
            shutil.rmtree(self.path)

    def _take(self, data: bytes, count: int, base: int) -> None:
        self.batches.append((base, base + count - 1, self.epoch, data))
        self.end = base + count

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 140),
        codec=st.sampled_from(["none", "lz4"]),
        producer=st.sampled_from([-1, -1, 7, 8]),
        time=st.integers(0, 1000),
    )
    def append(self, count: int, size: int, codec: str, producer: int, time: int) -> None:
        known = self.sequences.setdefault(producer, []) if producer >= 0 else []
        sequence = (known[-1][1] + known[-1][2] if known else 0) if producer >= 0 else -1
        data = batch(
            count, size=size, codec=codec, timestamp=time, producer_id=producer, base_sequence=sequence,
            producer_epoch=0 if producer >= 0 else -1,
        )  # fmt: skip
        info = append(self.log, data, epoch=self.epoch)
        assert (info.first_offset, info.duplicate) == (self.end, False)
        known.append((self.end, sequence, count))
        self._take(at(data, self.end, self.epoch), count, self.end)
        if producer >= 0:
            assert append(self.log, data, epoch=self.epoch).first_offset == info.first_offset

    @rule(hole=st.integers(0, 20), count=st.integers(1, 3))
    def mirror(self, hole: int, count: int) -> None:
        data = at(batch(count, timestamp=5), self.end + hole, self.epoch)
        append(self.log, data, origin=Origin.MIRROR, expected_next_offset=self.end)
        self._take(data, count, self.end + hole)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def sync(self) -> None:
        drive(self.log.sync())
        assert self.log.recovery_point == self.end

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(0, 6), inside=st.integers(0, 4))
    def truncate(self, back: int, inside: int) -> None:
        first, last, _, _ = self.batches[max(0, len(self.batches) - 1 - back)]
        offset = max(min(first + inside, last), self.start)
        drive(self.log.truncate_to(offset))
        self._cut_at(offset)
        assert self.end == (self.batches[-1][1] + 1 if self.batches else self.log.log_end_offset)
        assert self.start <= self.end <= offset

    def _cut_at(self, offset: int) -> None:
        """The log has lost all from an offset on, or everything when nothing from its start on was left."""
        self.batches = [b for b in self.batches if b[1] < offset]
        if not self.batches or self.batches[-1][1] + 1 < self.start:
            self.batches.clear()
            self.sequences.clear()
        self.end = self.log.log_end_offset
        self.sequences = {p: [s for s in known if s[0] + s[2] <= self.end] for p, known in self.sequences.items()}

    @rule(part=st.floats(0, 1))
    def advance(self, part: float) -> None:
        self.start += int((self.end - self.start) * part)
        self.log.advance_start(self.start)
        drive(self.log.enforce_retention(self.end, NOW_MS))

    @rule(clean=st.booleans(), synced=st.booleans())
    def restart(self, clean: bool, synced: bool) -> None:
        point = self.log.recovery_point if synced else 0
        if clean:
            drive(self.log.close())
        self.log = self.open(clean=clean, recovery_point=point, log_start_offset=self.start)
        assert not self.log.recovery_notes

    @precondition(lambda self: self.batches)
    @rule(cut=st.integers(1, 150))
    def tear(self, cut: int) -> None:
        """The process dies and the last file loses some of its end."""
        path = max((self.path / "t-0").glob("*.log"))
        data = path.read_bytes()
        if not data:
            return
        path.write_bytes(data[: max(0, len(data) - cut)])
        self.log = self.open(log_start_offset=self.start)
        self.end = self.log.log_end_offset
        self.batches = [b for b in self.batches if b[1] < self.end]
        self.sequences = {p: [s for s in known if s[0] + s[2] <= self.end] for p, known in self.sequences.items()}

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        expected = [b for b in self.batches if b[1] >= self.start]
        assert contents(log) == b"".join(data for *_, data in expected)
        for base, last, epoch, data in expected[-3:]:
            assert contents(log, max(last, self.start))[: len(data)] == data
            assert contents(log, max(base, self.start))[: len(data)] == data
            assert log.epoch_at(last) == epoch
        if expected:
            assert log.latest_epoch == expected[-1][2]

    @invariant()
    def finds_times(self) -> None:
        if not hasattr(self, "log") or len(self.batches) % 4:
            return
        records = [r for *_, data in self.batches for r in decode_batch(data) if r.offset >= self.start]
        for time in (0, 300, 1001, 1010):
            expected = next(((r.timestamp_ms, r.offset) for r in records if r.timestamp_ms >= time), None)
            found = drive(self.log.offset_for_timestamp(time))
            assert (found and tuple(found)[:2]) == expected

    @invariant()
    def knows_the_last_five(self) -> None:
        for producer, known in getattr(self, "sequences", {}).items():
            entry = self.log.producers.get(producer)
            kept = [s for s in known if s[0] >= self.log.ranges.segments[0].base_offset][-5:]
            got = [(b.first_offset, b.first_sequence) for b in entry.batches] if entry else []
            assert got[len(got) - len(kept) :] == [s[:2] for s in kept]


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLogAgainstModel = Machine.TestCase
