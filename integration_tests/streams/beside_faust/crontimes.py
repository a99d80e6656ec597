# mypy: ignore-errors
"""When crontabs run: run as `crontimes.py faust` or `crontimes.py isthmus`, it prints the next times of each in JSON,
by crontab, zone and beginning. What is no crontab is `error`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

IS_FAUST = not TYPE_CHECKING and sys.argv[1] == "faust"
if IS_FAUST:
    from croniter.croniter import croniter
else:
    from isthmus.streams.api.background import at_times

CRONTABS = """
* * * * *|*/5 * * * *|0 * * * *|30 18 * * *|30 18 * * mon-fri|0 0 1 * *|0 0 31 * *|0 0 29 2 *|15,45 8-17 * * *
0 12 * * 0|0 12 * * 7|0 12 * * sun|0 12 * jan,jul *|0 0 13 * 5|0 0 */2 * 1|0 0 1-7 * 1|0 0 1 * */2|5/15 * * * *
10-50/20 * * * *|0 */6 * * *|0 0 L * *|0 0 * * L5|0 0 * * 5#2|0 0 * * fri#1|0 0 ? * *|0 0 1 * ?|  0  1 * * *
@hourly|@daily|@midnight|@weekly|@monthly|@yearly|@annually|@reboot|* * * * * */2|* * * * * 30|0 0 * * * 15,45
30 2 * * * 10|0 22-2 * * *|0 0 * * fri-mon|0 0 * nov-feb *|50-10 * * * *|0 0 * * 1-5/2|0 0 * * 1,3,5|0 0 1 1 mon
60 * * * *|* * * *|x * * * *|0 0 30 2 *|*/0 * * * *|0 24 * * *|1-1 * * * *|* * * * * * 2030
"""
PLACES = (
    *((zone, at) for zone in ("UTC", "Asia/Kolkata") for at in ("2023-10-28T23:30:15.5", "2024-02-28T12:00:00")),
    ("Europe/Berlin", "2024-01-10T00:00:00"),
)
OVER_A_CHANGE = ("30 18 * * *", "Europe/Berlin", "2024-03-30T22:59:59.999")


async def job(): ...


def following(crontab: str, zone: ZoneInfo, at_s: float):
    """The next two times, in seconds since the epoch, each after the one before it as a worker asks for them."""
    for _ in range(2):
        if IS_FAUST:
            at_s = croniter(crontab, start_time=datetime.fromtimestamp(at_s, zone)).get_next(float)
        else:
            at_s = at_times(job, crontab, zone).crontab.after(round(at_s * 1000), zone) / 1000
        yield at_s


def main() -> None:
    found = {}
    crontabs = [each for line in CRONTABS.strip().splitlines() for each in line.split("|")]
    cases = [(crontab, *place) for crontab in crontabs for place in PLACES]
    for crontab, zone, at in (*cases, OVER_A_CHANGE):
        begin = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
        try:
            times = [
                datetime.fromtimestamp(at_s, UTC).isoformat() for at_s in following(crontab, ZoneInfo(zone), begin)
            ]
        except Exception:
            times = "error"
        found[f"{crontab} in {zone} from {at}"] = times
    print(json.dumps(found))


main()
