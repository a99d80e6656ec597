"""What a check says of logs that were compacted: an emptied batch keeps its header, and nobody looks for its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.core_broker.storage.check.findings import Known
from isthmus.core_broker.storage.check.partition_check import check_partition
from isthmus.core_broker.storage.log.index_files import TIME_ENTRY
from tests.core_broker.storage.compacting import ROOMY, Bench
from tests.core_broker.storage.support import run

COMPACTED = Known(clean=True, dense=False, compacted=True)
PRODUCER = {"producer_epoch": 0, "base_sequence": 0}


def compacted(path: Path, *ages_ms: int) -> Path:
    """Closed: a segment of batches of these ages, each of a producer of its own and each but the last emptied."""
    bench = Bench(path, ROOMY)
    for number, age_ms in enumerate(ages_ms):
        bench.put((b"k", b"value %d" % number), age_ms=age_ms, producer_id=number, **PRODUCER)
    bench.close_segment()
    bench.put((b"z", b"later"), age_ms=-9000)
    assert bench.clean()
    emptied = len(ages_ms) - 1
    assert len(bench.spans()) == emptied + 2 and len(bench.records()) == 2  # the control: they are there, and empty
    directory = Path(bench.log.directory)
    run(bench.log.close())
    return directory


def problems(directory: Path) -> list[str]:
    report = check_partition(Bench(directory.parent / "other").files, str(directory), COMPACTED)
    return [str(each.text) for each in report.problems if each.file.endswith("timeindex")]


@pytest.mark.parametrize("ages_ms", [(-5000, 0), (0, -5000), (-5000, -7000, 0), (-7000, 0, -5000), (10, 5, 0)])
def test_times_of_emptied_batches_are_not_missed(tmp_path: Path, ages_ms: tuple[int, ...]) -> None:
    """A check found a time index wrong where the largest time of a segment was an emptied batch's, and went on to."""
    assert problems(compacted(tmp_path / "t-0", *ages_ms)) == []


def test_an_index_that_tells_of_an_emptied_batch_is_as_good(tmp_path: Path) -> None:
    """As one has it that Kafka has made anew."""
    directory = compacted(tmp_path / "t-0", -5000, 0)
    index = directory / "00000000000000000000.timeindex"
    [(largest, _)] = TIME_ENTRY.iter_unpack(index.read_bytes())
    index.write_bytes(TIME_ENTRY.pack(largest + 5000, 0))
    assert problems(directory) == []
    index.write_bytes(TIME_ENTRY.pack(largest + 5001, 0))
    assert "the largest timestamp of the batch with offset 0 is" in problems(directory)[0]
