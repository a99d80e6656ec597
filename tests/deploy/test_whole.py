"""A file that is written anew is all of the old or all of the new."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.deploy.whole import write_whole
from tests.core_broker.storage.support import files_may_have


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_who_has_the_old_file_open_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old" * 100_000)
    with path.open() as reader:
        assert reader.read(3) == "old"
        write_whole(path, "new")
        assert reader.read() == "old" * 99_999  # more than what is read ahead
    assert (path.read_text(), names(tmp_path)) == ("new", ["a.json"])


def test_the_old_file_stays_and_no_other_where_the_new_one_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "old")
    with files_may_have(100), pytest.raises(OSError, match="File too large"):
        write_whole(path, "new" * 100)
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.json"])
