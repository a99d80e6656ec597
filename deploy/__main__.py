"""The supervisor as a process of its own: `python -m isthmus.deploy -f topology.yaml --data FOLDER`.

`isthmus up` starts it in the background; it runs the topology until SIGTERM or SIGINT and then stops all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from .errors import DeployError
from .launch import Layout, launch
from .supervisor import EXIT_CONFIG, Event, Supervisor
from .topology import load


def say(event: Event) -> None:
    at = time.strftime("%H:%M:%S")
    print(f"{at} {event.process} {event.state}" + (f": {event.text}" if event.text else ""), flush=True)


async def run(file: Path, folder: Path) -> int:
    """Run until told to stop; 1 when something did not start (everything is stopped again then)."""
    layout = Layout.make(load(file), file, folder)
    supervisor = Supervisor(folder, say)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    launching = asyncio.create_task(launch(layout, supervisor))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((launching, stopping), return_when=asyncio.FIRST_COMPLETED)
        if launching.done():
            launching.result()
            print("ready", flush=True)
            await stopping
    finally:
        launching.cancel()
        stopping.cancel()
        await supervisor.stop()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m isthmus.deploy", description=__doc__.splitlines()[0])
    parser.add_argument("-f", "--file", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    try:
        return asyncio.run(run(options.file.resolve(), options.data.resolve()))
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main())
