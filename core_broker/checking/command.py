"""`isthmus broker check DIR [--repair] [--json]`.

Prints one line for each partition, and one for each problem. Exit code 0: no problem, or all were repaired; 1: problems
remain; 2: the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ... import runtime
from ..storage.check.findings import STAYS, Finding
from ..storage.disk.real_files import RealFiles
from .directory import CannotCheck, Checked, DirectoryCheck

EXIT_CLEAN, EXIT_WRONG = 0, 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="isthmus broker check",
        description="Find what is wrong with the data directory of a broker that does not run: broken CRCs, torn "
        "batches, gaps and overlaps of offsets, decreasing leader epochs, wrong indexes and checkpoints.",
    )
    parser.add_argument("directory", metavar="DIR", help="the data directory, as in isthmus broker --data")
    parser.add_argument("--repair", action="store_true", help="cut logs before their first broken batch, rebuild "
                        "indexes and checkpoints; check without it first, since what is cut off is lost")  # fmt: skip
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    given = parser.parse_args(arguments)
    logging.getLogger("isthmus").addHandler(logging.NullHandler())  # messages of a recovery are printed as done
    files = RealFiles(1)
    check = DirectoryCheck(files, given.directory, runtime.system())
    try:
        check.begin()
        return asyncio.run(_run(check, given.repair, given.as_json))
    except CannotCheck as error:
        print(f"isthmus broker check: {error}", file=sys.stderr)
    except OSError as error:
        print(f"isthmus broker check: {error.filename or given.directory}: {error.strerror}", file=sys.stderr)
    finally:
        check.end()
        files.close()
    return EXIT_WRONG


async def _run(check: DirectoryCheck, repair: bool, as_json: bool) -> int:
    for checked in check.partitions():
        if not as_json:
            _say(_partition(checked, will_repair=repair))
    wrong = check.wrong
    mends = repair and wrong > 0
    if not as_json:
        _say(_directory(check))
    if mends:
        for checked in await check.repair():
            if not as_json:
                _say(_repaired(checked))
        wrong = check.still_wrong
    if as_json:
        print(json.dumps(_as_json(check, mends), indent=2))
    else:
        _say(_summary(check, mends))
    return EXIT_WRONG if wrong else EXIT_CLEAN


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _partition(checked: Checked, will_repair: bool) -> Iterator[str]:
    report = checked.report
    state = f"{len(report.problems)} wrong" if report.problems else "ok"
    offsets = f"offsets {report.log_start_offset} to {report.log_end_offset - 1}"
    if report.log_end_offset <= report.log_start_offset:
        offsets = f"empty at offset {report.log_end_offset}"
    segments = f"{report.segments} segment" + ("" if report.segments == 1 else "s")
    yield f"{report.name}: {state}, {offsets}, {segments}, {report.size_bytes} bytes"
    yield from _findings(report.problems)
    if report.cut is not None and not will_repair:
        yield f"  a repair would cut off {report.cut}"
    for note in report.notes:
        yield f"  note: {note}"


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for each in findings:
        where = f"{each.file}: " if each.file else ""
        yield f"  {each.kind}: {where}{each.text}"


def _directory(check: DirectoryCheck) -> Iterator[str]:
    for each in check.problems:
        yield f"{each.file}: {each.kind}: {each.text}"
    for note in check.notes:
        yield f"note: {note}"


def _repaired(checked: Checked) -> Iterator[str]:
    yield f"{checked.report.name}: repaired" if not checked.left else f"{checked.report.name}: {len(checked.left)} left"
    yield from _findings(checked.late)
    for line in checked.done:
        yield f"  {line}"


def _summary(check: DirectoryCheck, mended: bool) -> Iterator[str]:
    yield from check.done
    stopped = "after a clean shutdown" if check.clean else "not shut down cleanly"
    partitions = f"{len(check.checked)} partition" + ("" if len(check.checked) == 1 else "s")
    if not check.wrong:
        yield f"{check.data_dir}, {stopped}: {partitions}, nothing is wrong"
        return
    if mended:
        left = check.still_wrong
        for checked in check.checked.values():
            for each in checked.left:
                yield f"left: {checked.report.name}: {each.text}"
        for each in check.left:
            yield f"left: {each.file}: {each.text}"
        yield f"{check.data_dir}: {check.wrong} wrong, {left} left" if left else f"{check.data_dir}: all repaired"
    else:
        touched = [one for one in check.checked.values() if not one.stays]
        mendable = [*check.problems, *(each for one in touched for each in one.report.problems)]
        count = sum(each.kind not in STAYS for each in mendable)
        way_out = f"; --repair repairs {count} of them" if count else ""
        yield f"{check.data_dir}, {stopped}: {partitions}, {check.wrong} wrong{way_out}"


def _as_json(check: DirectoryCheck, mended: bool) -> dict[str, Any]:
    def one(checked: Checked) -> dict[str, Any]:
        report = checked.report
        facts = asdict(report)
        del facts["epochs"], facts["bad_files"]
        facts["leader_epochs"] = [{"epoch": epoch, "start_offset": start} for epoch, start in report.epochs]
        if mended:
            facts["done"] = checked.done
            facts["left"] = [asdict(each) for each in checked.left]
        return facts

    answer: dict[str, Any] = {
        "directory": check.data_dir,
        "cluster_id": check.identity.get("cluster.id"),
        "node_id": check.identity.get("node.id"),
        "clean": check.clean,
        "wrong": check.wrong,
        "problems": [asdict(each) for each in check.problems],
        "notes": check.notes,
        "partitions": [one(each) for each in check.checked.values()],
    }
    if mended:
        answer |= {"left": check.still_wrong, "done": check.done}
    return answer
