"""The broken devices of the tests' own break as they are said to."""

from __future__ import annotations

import sys
from pathlib import Path

from integration_tests.disks import MB, Mounts, Volume

_WRITE_AND_READ_AGAIN = """
import os, sys
PIECE_BYTES = 100_072  # pieces that share pages, so that room ends in the middle of what one sync writes
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
pieces = [n.to_bytes(4, "big") * (PIECE_BYTES // 4) for n in range(1, 81)]
synced = 0
try:
    for piece in pieces:
        os.write(fd, piece)
        os.fsync(fd)
        synced += 1
except OSError as error:
    print(error.strerror)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
kept = sum(os.pread(fd, PIECE_BYTES, n * PIECE_BYTES) == piece for n, piece in enumerate(pieces[:synced]))
print(synced, kept)
"""


def test_a_thin_volume_has_what_it_said_is_on_disk(tmp_path: Path) -> None:
    mounts = Mounts(devices=True)
    try:
        volume = Volume(mounts, tmp_path, 4 * MB)
        said = mounts.run(sys.executable, "-c", _WRITE_AND_READ_AGAIN, volume.path / "file").splitlines()
    finally:
        mounts.close()
    assert said[0] == "No space left on device"
    synced, kept = map(int, said[1].split())
    assert 30 < synced < 50 and kept == synced
