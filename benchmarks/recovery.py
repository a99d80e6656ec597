"""How long a start after a crash looks through one log: `python -m benchmarks.recovery --gb 10 --batch-kib 16,1024`.

A log of 1 KB records is written as a broker writes it, and left as `kill -9` leaves it. It is opened with all of it
behind the recovery point but the last --past-mb, then with none of it; each from the page cache and, with --cold,
from the disk. One JSON line a start: seconds, CPU-seconds, batches and bytes that a recovery has to read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol._walk import COMPILED
from isthmus.protocol.records import build_batch

MB, GB = 10**6, 10**9
SEGMENT_BYTES = 1 << 30
RECORD_BYTES = 1024
APPEND_BYTES = 8 << 20
PRODUCER = 7
SEQUENCES = 2**31


def one_batch(size_bytes: int) -> tuple[bytes, int]:
    """About so large, and how many records are in it."""
    count = max(1, size_bytes // RECORD_BYTES)
    now_ms = 1_700_000_000_000
    value = os.urandom(RECORD_BYTES - 16)
    rows = [(now_ms + n, b"%08d" % n, value, ()) for n in range(count)]
    return build_batch(rows, producer_id=PRODUCER, producer_epoch=0, base_sequence=0), count


async def write(files: RealFiles, directory: str, config: LogConfig, total_bytes: int, batch_bytes: int) -> int:
    """Fill a log and leave it; gives its end. Sequences are not checked, as in a follower: each batch begins at 0."""
    log = await open_log(files, directory, config, wall_ms=1)
    batch, count = one_batch(batch_bytes)
    written = 0
    while written < total_bytes:
        parts = []
        base = log.log_end_offset
        for _ in range(max(1, min(APPEND_BYTES, total_bytes - written) // len(batch))):
            parts.append(base.to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:])
            base += count
        written += log.append(b"".join(parts), Origin.REPLICATION, 0, 1).size_bytes
    await log.sync()
    log.abandon()
    return log.log_end_offset


async def start(files: RealFiles, directory: str, config: LogConfig, recovery_point: int) -> tuple[float, float, Log]:
    """Seconds and CPU-seconds of a start, and the log."""
    began, cpu_began = time.perf_counter(), time.process_time()
    log = await open_log(files, directory, config, wall_ms=2, recovery_point=recovery_point)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    log.abandon()
    return seconds, cpu_s, log


def forget(directory: str) -> None:
    """Take the files out of the page cache."""
    for path in Path(directory).iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


async def measure(folder: str, total_bytes: int, past_bytes: int, batch_bytes: int, cold: bool) -> None:
    files = RealFiles(1)
    directory = f"{folder}/t-{batch_bytes}"
    batch, count = one_batch(batch_bytes)
    past = past_bytes // len(batch)
    # A segment ends where the last --past-mb begin, as after a roll: closed segments are synced at once.
    config = LogConfig(segment_bytes=SEGMENT_BYTES, max_message_bytes=1 << 30)
    end = await write(files, directory, config, total_bytes - past_bytes, batch_bytes)
    log = await open_log(files, directory, config, wall_ms=1, recovery_point=end)
    log.rolling.roll(end, 1)
    parts = [(end + n * count).to_bytes(8, "big") + batch[8:12] + bytes(4) + batch[16:] for n in range(past)]
    for first in range(0, past, max(1, APPEND_BYTES // len(batch))):
        log.append(b"".join(parts[first : first + max(1, APPEND_BYTES // len(batch))]), Origin.REPLICATION, 0, 1)
    await log.sync()
    log.abandon()
    for name, point, size in (
        (f"all but {past_bytes // MB} MB synced", end, past_bytes),
        ("nothing synced", 0, total_bytes),
    ):
        for is_cold in (False, True) if cold else (False,):
            if is_cold:
                forget(directory)
            seconds, cpu_s, opened = await start(files, directory, config, point)
            assert opened.log_end_offset == end + past * count, "records are lost"
            told = {
                "batch_bytes": len(batch),
                "log_bytes": opened.size_bytes,
                "state": name,
                "read_bytes": size,
                "read_batches": size // len(batch),
                "from": "disk" if is_cold else "page cache",
                "seconds": round(seconds, 3),
                "cpu_s": round(cpu_s, 3),
                "walk": "compiled" if COMPILED else "plain Python",
            }
            print(json.dumps(told), flush=True)
    files.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--gb", type=float, default=10.0, help="of the log (%(default)s)")
    parser.add_argument("--past-mb", type=int, default=100, help="behind the recovery point (%(default)s)")
    parser.add_argument("--batch-kib", default="16,1024", help="sizes of batches (%(default)s)")
    parser.add_argument("--cold", action="store_true", help="from the disk, too")
    parser.add_argument("--folder", help="where the log is written; the system's temporary one by default")
    given = parser.parse_args()
    for size in given.batch_kib.split(","):
        with tempfile.TemporaryDirectory(prefix="isthmus-recovery-", dir=given.folder) as folder:
            asyncio.run(measure(folder, int(given.gb * GB), given.past_mb * MB, int(size) << 10, given.cold))


if __name__ == "__main__":
    main()
