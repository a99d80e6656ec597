"""Replaces segments by a cleaned one, so that after any crash either the old ones or the new one are complete.

The names are Kafka's. A file that is being written ends in `.cleaned`. When all are synced, they are renamed to
`.swap`, the log last; from then on the swap is decided. The old files are removed, and the suffix `.swap` is removed
from the new ones, the log first. A start undoes a swap that is not decided and finishes one that is.

A power cut may undo each rename on its own. So the directory is synced between two steps whose order matters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..disk.files import Files
from ._segment import MAX_RELATIVE, Segment
from .file_names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, file_name, offset_of
from .index_files import is_sane, search_offset_index
from .transactions import TransactionIndex

CLEANED = ".cleaned"
SWAP = ".swap"
_LOG_LAST = (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX)


class Replacement(NamedTuple):
    """A segment that is written and synced, under `.cleaned` names, and the segments it replaces."""

    new: Segment
    old: tuple[Segment, ...]


def decide(files: Files, new: Segment, old: Sequence[Segment]) -> None:
    """Decide for a cleaned segment, whose files are synced: a start now uses it. Raises OSError.

    All segments are searched in memory until `finish` returns, because their files are removed or renamed.
    """
    for segment in old:
        segment.load_indexes(files)
    new.aborted = TransactionIndex.read(files, new)
    new.file.keep()
    files.sync_directory(new.directory)  # so that a file whose new name is lost has its old one
    for path in [new.path(suffix) for suffix in _LOG_LAST]:
        if files.exists(path):
            files.rename(path, path.removesuffix(CLEANED) + SWAP)
    files.sync_directory(new.directory)
    new.tail = SWAP


def finish(files: Files, new: Segment, old: Sequence[Segment]) -> None:
    """Remove the old segments and give the new one its name. Raises OSError; then only a start can finish it."""
    for segment in old:
        with contextlib.suppress(OSError):  # if it cannot be opened, ranges of it that were given out cannot be read
            segment.file.keep()
    _take_place(files, new, [segment.base_offset for segment in old])
    new.tail = ""
    new.file.renamed(new.path(LOG_SUFFIX))
    new.aborted = new.offsets = new.times = None


def discard(files: Files, segment: Segment) -> None:
    """Remove the files of a segment that will not be used. Raises OSError.

    A swap that was decided is first undone. Until no file has `.swap`, the log has `.cleaned`: a start would use a log
    with `.swap` without its indexes, and an index with `.swap` for the old log.
    """
    directory = segment.directory
    paths = [f"{directory}/{file_name(segment.base_offset, suffix)}" for suffix in SEGMENT_SUFFIXES]
    log = paths[0]
    if any(files.exists(path + SWAP) for path in paths):
        if files.exists(log + SWAP):
            files.rename(log + SWAP, log + CLEANED)
        files.sync_directory(directory)
        _unlink(files, (path + SWAP for path in paths))
        files.sync_directory(directory)
    _unlink(files, (path + CLEANED for path in paths))


def recover(files: Files, directory: str) -> bool:
    """The first step of a start: undo or finish an interrupted swap. Returns whether there was one. Raises OSError."""
    names = files.listdir(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    if not cleaned and not swaps:
        return False
    # While any file is `.cleaned`, the `.swap` files are not decided. These are removed first, as in Kafka.
    undecided = min((offset for name in cleaned if (offset := offset_of(name)) is not None), default=None)
    for name in list(swaps):
        offset = offset_of(name)
        if offset is None or (undecided is not None and offset >= undecided):
            files.unlink(f"{directory}/{name}")
            swaps.remove(name)
    if undecided is not None:
        files.sync_directory(directory)  # while `.cleaned` still shows that they are not decided
    for name in cleaned:
        files.unlink(f"{directory}/{name}")
    for name in swaps:
        base = offset_of(name)
        if base is not None and name.endswith(LOG_SUFFIX + SWAP):
            file = files.open(f"{directory}/{name}", create=False)
            new = Segment(file, directory, base, 0, SWAP)
            following = _next_offset(files, new)
            bases = [at for each in names if each.endswith(LOG_SUFFIX) and (at := offset_of(each)) is not None]
            _take_place(files, new, [at for at in bases if base <= at < following])
    for name in files.listdir(directory):
        if name.endswith(SWAP):  # an index; its log was renamed already
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    files.sync_directory(directory)
    return True


def _take_place(files: Files, new: Segment, replaced: Iterable[int]) -> None:
    directory, base = new.directory, new.base_offset
    for offset in replaced:
        if offset != base:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                _unlink(files, [f"{directory}/{file_name(offset, suffix)}"])
    for suffix in SEGMENT_SUFFIXES[1:]:  # an old index would be taken for the new log's
        path = f"{directory}/{file_name(base, suffix)}"
        if files.exists(path) and not files.exists(new.path(suffix)):
            files.unlink(path)
    # A start finds the replaced segments by the log with `.swap`. No segment may begin inside another.
    files.sync_directory(directory)
    for renamed in (SEGMENT_SUFFIXES[:1], SEGMENT_SUFFIXES[1:]):
        for suffix in renamed:
            path = new.path(suffix)
            if files.exists(path):
                files.rename(path, path.removesuffix(SWAP))
        files.sync_directory(directory)  # the log first: an index without `.swap` beside it is the old log's


def _unlink(files: Files, paths: Iterable[str]) -> None:
    """Remove the files that exist."""
    for path in paths:
        if files.exists(path):
            files.unlink(path)


def _next_offset(files: Files, segment: Segment) -> int:
    index = segment.path(INDEX_SUFFIX)
    start = 0
    if is_sane(files, index, segment.size_bytes):
        start = search_offset_index(files, index, MAX_RELATIVE)
    last = segment.base_offset - 1
    for batch in segment.batches(start):
        last = batch.last_offset
    return last + 1
