"""A mirror worker as a process: `python -m isthmus.mirror --link NAME --source HOST:PORT --target HOST:PORT …`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from ..client import Client
from ..client.errors import ClientError
from ..protocol.errors import KafkaError
from ..readiness import Readiness
from .errors import MirrorError
from .link import MirrorLink, patterns
from .worker import MirrorWorker

EXIT_FAILED, EXIT_CONFIG = 1, 2


async def serve(link: MirrorLink, source_address: str, target_address: str, readiness: Readiness) -> None:
    """Mirror until cancelled; raises errors that the worker cannot recover from."""
    source = Client(source_address, client_id=f"mirror-{link.name}")
    target = Client(target_address, client_id=f"mirror-{link.name}")
    worker = MirrorWorker(link, source, target)
    try:
        await source.start()
        await target.start()
        await worker.start()
        works = f"{link.name}: {source_address} -> {target_address}"
        print(f"ready {works}", flush=True)
        readiness.tell(works)
        readiness.tell_where_asked()
        readiness.beat(asyncio.get_running_loop())
        await worker.failed
    finally:
        await worker.stop()
        await source.close()
        await target.close()


async def run(link: MirrorLink, source_address: str, target_address: str, readiness: Readiness) -> None:
    """Mirror until SIGTERM or SIGINT. The signals also end a start that still waits for its brokers."""
    loop = asyncio.get_running_loop()
    serving = loop.create_task(serve(link, source_address, target_address, readiness))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


def main() -> int:
    readiness = Readiness.take()
    parser = argparse.ArgumentParser(prog="python -m isthmus.mirror", description=__doc__.splitlines()[0])
    parser.add_argument("--link", required=True, help="name of the link")
    parser.add_argument("--source-alias", required=True, help="what {source} in --rename stands for")
    parser.add_argument("--source", required=True, metavar="HOST:PORT")
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--topics", required=True, help="comma-separated regular expressions of whole names")
    parser.add_argument("--rename", default="{source}.{topic}")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        link = MirrorLink(options.link, options.source_alias, patterns(options.topics), options.rename)
        uvloop.run(run(link, options.source, options.target, readiness))
    except MirrorError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except (KafkaError, ClientError, OSError) as error:
        print(f"error: mirror {options.link}: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
