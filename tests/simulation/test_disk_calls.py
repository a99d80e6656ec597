"""ENOSPC and EIO at every file call of a broker at work, once and from then on. See `disk_calls.py` for what must hold.

`make test` refuses the first call of each kind from each place in the code and in each directory; `make soak` every
call there is.
"""

from __future__ import annotations

import errno
import logging
import multiprocessing
from collections import Counter
from typing import Any, NamedTuple

import pytest

from isthmus.core_broker.cluster.controller import Controller
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.replication.shortage import Shortage

from .disk_calls import OFFSETS, TAKES_ROOM, TOPICS, Call, Disk, Said, Trial, chosen
from .file import SimFile
from .runner import Result, run

SEED = 7
PROCESSES = 2
MODES = {  # name -> error, how long it lasts
    "EIO once": (errno.EIO, ""),
    "EIO from then on": (errno.EIO, "place"),
    "ENOSPC once": (errno.ENOSPC, ""),
    "a disk that stays full": (errno.ENOSPC, "full"),
}


class Outcome(NamedTuple):
    number: int
    refused: list[tuple[str, str]]
    counters: Counter[str]
    error: str | None


def live(disk: Disk) -> Result:
    """The story on this disk."""
    said = Said()
    logger = logging.getLogger("isthmus")
    propagates, level = logger.propagate, logger.level
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(said)
    try:
        return run(SEED, lambda sim: Trial(sim, disk, said).run())
    finally:
        logger.removeHandler(said)
        logger.propagate = propagates
        logger.setLevel(level)


def refuse(job: tuple[int, int, str]) -> Outcome:
    number, error, lasts = job
    disk = Disk(number, error, lasts)
    result = live(disk)
    wrong = None if result.error is None else result.error[-3000:]
    return Outcome(number, disk.refused, result.counters, wrong)


def refuse_all(numbers: list[int], mode: str) -> list[Outcome]:
    error, lasts = MODES[mode]
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        return list(pool.imap(refuse, [(number, error, lasts) for number in numbers], chunksize=4))


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    disk = Disk(rehearses=True)
    result = live(disk)
    assert result.error is None, result.error
    return disk.calls


def numbers_for(mode: str, calls: list[Call], numbers: list[int]) -> list[int]:
    """Those calls that a disk can refuse so: room is what only writers want."""
    return numbers if MODES[mode][0] == errno.EIO else [n for n in numbers if calls[n].kind in TAKES_ROOM]


def check(mode: str, calls: list[Call], numbers: list[int]) -> Counter[str]:
    counters: Counter[str] = Counter()
    wrong = []
    for outcome in refuse_all(numbers, mode):
        call = calls[outcome.number]
        counters.update(outcome.counters)
        if outcome.error is not None:
            wrong.append(f"call {outcome.number}, {call.kind} in {call.place!r} from {call.site}: {outcome.error}")
        else:
            kind, _ = outcome.refused[0]
            assert kind == call.kind, f"call {outcome.number} was a {kind}, not a {call.kind} as in the rehearsal"
    assert not wrong, f"{len(wrong)} of {len(numbers)}:\n" + "\n\n".join(wrong[:5])
    return counters


def test_the_rehearsal_has_every_kind_of_call_in_every_directory(calls: list[Call]) -> None:
    kinds = Counter(call.kind for call in calls)
    assert {*TAKES_ROOM, "listdir", "lock", "open", "read", "size", "truncate", "unlink"} <= set(kinds), kinds
    places = Counter(call.place for call in calls)
    assert {"", "__cluster_metadata-0", f"{OFFSETS}-0", "late-0", *(f"{name}-0" for name in TOPICS)} == set(places)
    said = " ".join({call.site for call in calls})
    for work in (
        "rolling.py:roll",
        "swap_files.py:finish",
        "write_snapshot",
        "removals.py:remove_piece",
        "_recover",
        "retention.py:remove_segments",
        "connection.py:send_ranges",
        "sync_files",
    ):
        assert work in said, f"{work} has called nothing"


@pytest.mark.parametrize("mode", MODES)
def test_a_refused_call_harms_its_own_partition_alone_and_loses_nothing(mode: str, calls: list[Call]) -> None:
    chosen_ones = {*chosen(calls), *(last(calls, "append", f"{name}-0") for name in TOPICS)}
    numbers = numbers_for(mode, calls, sorted(chosen_ones))
    counters = check(mode, calls, numbers)
    assert counters["answer_KAFKA_STORAGE_ERROR"], counters
    if MODES[mode] == (errno.ENOSPC, "full"):
        assert counters["wanted_room"], counters


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_every_call_that_is_refused_does(mode: str, calls: list[Call]) -> None:
    check(mode, calls, numbers_for(mode, calls, list(range(len(calls)))))


def first(calls: list[Call], kind: str, place: str) -> int:
    return next(n for n, call in enumerate(calls) if (call.kind, call.place) == (kind, place))


def last(calls: list[Call], kind: str, place: str) -> int:
    """In the last life before the disk is well again, which nobody ends then."""
    return max(n for n, call in enumerate(calls) if (call.kind, call.place) == (kind, place))


def test_control_a_partition_that_is_not_told_offline_is_seen(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = first(calls, "listdir", "calm-0")
    assert refuse((number, errno.EIO, "")).error is None
    monkeypatch.setattr(ReplicaManager, "_take_offline", lambda self, wanted, error: None)
    wrong = refuse((number, errno.EIO, "")).error
    assert wrong is not None and "calm-0" in wrong


@pytest.mark.parametrize(
    ("kind", "place", "how", "comes_back", "said"),
    [
        ("append", "calm-0", "full", (Shortage, "_begin"), "there is room again, but not for"),
        (
            "sync", "__cluster_metadata-0", "", (Controller, "_wait_for_space"),
            "there is room again, but not for {('__cluster_metadata', 0)",
        ),
    ],
)  # fmt: skip
def test_control_what_does_not_come_back_when_there_is_room_is_seen(
    kind: str,
    place: str,
    how: str,
    comes_back: tuple[type, str],
    said: str,
    calls: list[Call],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = last(calls, kind, place), errno.ENOSPC, how
    outcome = refuse(refused)
    assert outcome.error is None and outcome.counters["wanted_room"]
    monkeypatch.setattr(*comes_back, lambda self: None)
    wrong = refuse(refused).error
    assert wrong is not None and said in wrong


def test_control_a_record_that_is_lost_is_seen(calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> None:
    """What an append that was refused has left is cut off, and a batch more."""
    real = SimFile.append

    def append(self: SimFile, parts: Any) -> None:
        try:
            real(self, parts)
        except OSError:
            if "/calm-0/" in self.path:
                self.truncate(self.size - 1)
            raise

    number = first(calls, "append", "calm-0")
    assert refuse((number, errno.ENOSPC, "")).error is None
    monkeypatch.setattr(SimFile, "append", append)
    wrong = refuse((number, errno.ENOSPC, "")).error
    assert wrong is not None and "calm" in wrong
