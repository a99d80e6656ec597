"""The one rule of read_committed (KIP-98): which of the batches that a fetch has answered count.

The answer itself says which transactions were aborted: all that overlap with its batches, wherever they began. So the
rule needs nothing of earlier answers, and a reader may begin within a transaction, or where the log was cut within one.
It needs headers only.
"""

from __future__ import annotations

from collections.abc import Iterable

from .records import walk


def without_aborted(data: memoryview, aborted: Iterable[tuple[int, int]]) -> memoryview:
    """The batches of `data` but those of aborted transactions. aborted: producer id and first offset of each, in any
    order. A producer's batches from there on are aborted up to its next control batch. Nothing is copied where the rest
    is in one piece."""
    pending = sorted(aborted, key=lambda each: each[1], reverse=True)
    if not pending:
        return data
    open_ids: dict[int, None] = {}
    runs: list[tuple[int, int]] = []  # of bytes that are kept
    for at, header in walk(data):
        while pending and pending[-1][1] <= header.last_offset:
            open_ids[pending.pop()[0]] = None
        if header.is_control:
            open_ids.pop(header.producer_id, None)
        elif header.is_transactional and header.producer_id in open_ids:
            continue
        end = at + header.size_bytes
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((at, end))
    if len(runs) == 1:
        return data[runs[0][0] : runs[0][1]]
    return memoryview(b"".join(data[begin:end] for begin, end in runs))
