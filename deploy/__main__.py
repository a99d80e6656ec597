"""The supervisor as a process of its own: `python -m isthmus.deploy -f topology.yaml --data FOLDER`.

`isthmus up` starts it in the background; it runs the topology until SIGTERM or SIGINT and then stops all of it. It
does so, too, when its folder is removed, since nobody could find it any more, or the process of `--while` is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from .control import Control
from .errors import DeployError, NotAllStarted
from .launch import FAILURE, NOTE, Layout, launch
from .operator import Operator
from .output import rotate_own
from .supervisor import EXIT_CONFIG, Event, Supervisor, start_ticks
from .topology import load

LOOK_S = 1.0


def say(event: Event) -> None:
    at = time.strftime("%H:%M:%S")
    print(f"{at} {event.process} {event.state}" + (f": {event.text}" if event.text else ""), flush=True)
    rotate_own(sys.stdout.fileno())


async def run(file: Path, folder: Path, wanted_by: int | None) -> int:
    """Run until told to stop. DeployError: brokers or topics are not what the file asks for (everything is stopped
    again then); mirrors and workers that do not work leave the rest at work."""
    layout = Layout.make(load(file), file, folder)
    supervisor = Supervisor(folder, say)
    operator = Operator(layout, supervisor)
    control = Control(folder, operator.handle)
    await control.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    launching = asyncio.create_task(launch(layout, supervisor))
    stopping = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(unwanted(supervisor.state_file, wanted_by))
    watching.add_done_callback(lambda _: stop.set())
    try:
        await asyncio.wait((launching, stopping), return_when=asyncio.FIRST_COMPLETED)
        if launching.done():
            notes, failures = _outcome(launching)
            for line in notes:
                print(f"{NOTE}{line}")
            for line in failures:
                print(f"{FAILURE}{line}")
            operator.does = ""
            print("ready", flush=True)
            await stopping
    finally:
        launching.cancel()
        stopping.cancel()
        watching.cancel()
        operator.does = "down"
        await control.end_requests()
        await supervisor.stop()
        await control.stop()
    return 0


def _outcome(launching: asyncio.Task[list[str]]) -> tuple[list[str], list[str]]:
    """Notes, and what does not work."""
    try:
        return launching.result(), []
    except NotAllStarted as error:
        return error.notes, error.failures


async def unwanted(state_file: Path, wanted_by: int | None) -> None:
    """Return when somebody has removed the folder, or the process that wanted the topology is gone."""
    began = start_ticks(wanted_by) if wanted_by else 0
    while state_file.exists() and (wanted_by is None or start_ticks(wanted_by) == began != 0):
        await asyncio.sleep(LOOK_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m isthmus.deploy", description=__doc__.splitlines()[0])
    parser.add_argument("-f", "--file", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--while", dest="wanted_by", type=int, metavar="PID", help="stop when this process is gone")
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.file.resolve(), options.data.resolve(), options.wanted_by))
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main())
