"""A stream worker as a process: `python -m isthmus.streams path/to/file.py:app --bootstrap HOST:PORT`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import uvloop

from ..client import Client
from ..client.errors import ClientError
from ..protocol.errors import KafkaError
from ..readiness import Readiness
from .api.app import App
from .errors import AppError, StreamsError
from .runtime.worker import StreamWorker

EXIT_FAILED, EXIT_CONFIG = 1, 2
STOP_S = 5.0  # after a signal, for the current event and the last checkpoint


def find(name: str) -> App:
    """The app that `path/to/file.py:app` or `module:app` names."""
    where, colon, attribute = name.rpartition(":")
    if not colon:
        raise AppError(f"'{name}' does not name an object: write path/to/file.py:app or module:app")
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise AppError(f"there is no file {where}")
        sys.path.insert(0, str(path.parent))  # as Python does for a script: the app's own modules are in that folder
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with loading(where):
            spec.loader.exec_module(module)
    else:
        sys.path.insert(0, "")
        with loading(where):
            module = importlib.import_module(where)
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        raise AppError(f"{where} has no App called {attribute}")
    return app


@contextlib.contextmanager
def loading(where: str) -> Iterator[None]:
    """An app that cannot be loaded now cannot be loaded later: AppError names the line; ISTHMUS_DEBUG=1 shows all."""
    try:
        yield
    except AppError:
        raise
    except Exception as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError) and error.name and where.startswith(error.name):
            raise AppError(f"module {error.name}, which '{where}' imports, does not exist") from None
        if isinstance(error, SyntaxError):
            place, words = f"{error.filename}:{error.lineno}", error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            last = [frame for frame in frames if not frame.filename.startswith("<")][-1]
            place, words = f"{last.filename}:{last.lineno}", str(error)
        raise AppError(f"{where} cannot be loaded: {place}: {type(error).__name__}: {words}") from None


async def serve(
    app: App, bootstrap: str, working: asyncio.Event, stopping: asyncio.Event, readiness: Readiness
) -> None:
    """Run until `stopping`, then write a checkpoint and leave. If cancelled, or after an error, just leave."""
    client = Client(bootstrap, client_id=app.id)
    try:
        await client.start()
        worker = StreamWorker(app, client)
        stop = asyncio.get_running_loop().create_task(_stop_when(stopping, worker))
        try:
            await worker.start()
            working.set()
            works = f"{app.id}: {', '.join(worker.topics)}"
            print(f"ready {works}", flush=True)
            readiness.tell(works)
            await worker.run()
            await worker.close()
        except BaseException:
            await worker.abandon()
            raise
        finally:
            stop.cancel()
    finally:
        await client.close()


async def _stop_when(stopping: asyncio.Event, worker: StreamWorker) -> None:
    await stopping.wait()
    await worker.stop()


async def run(app: App, bootstrap: str, readiness: Readiness) -> None:
    """Run until SIGTERM or SIGINT. What is not done within STOP_S is done by the next run."""
    loop = asyncio.get_running_loop()
    working, stopping = asyncio.Event(), asyncio.Event()
    serving = loop.create_task(serve(app, bootstrap, working, stopping, readiness))

    def stop() -> None:
        stopping.set()
        loop.call_later(STOP_S if working.is_set() else 0, serving.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()
    elif working.is_set():
        logging.warning("app %s was stopped before its last checkpoint was written", app.id)


def main() -> int:
    readiness = Readiness.take()  # before any code of the app runs
    parser = argparse.ArgumentParser(prog="python -m isthmus.streams", description=__doc__.splitlines()[0])
    parser.add_argument("app", help="path/to/file.py:app or module:app")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        uvloop.run(run(find(options.app), options.bootstrap, readiness))
    except AppError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except (StreamsError, KafkaError, ClientError, OSError) as error:
        print(f"error: app {options.app}: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
