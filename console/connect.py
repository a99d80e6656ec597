"""From a `--bootstrap` on the command line to a started client: addresses, or the name of a running datacenter."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from ..client import Client
from ..client.errors import ConnectionLost
from ..deploy.chosen import KEPT, kept_addresses
from ..deploy.errors import DeployError
from ..deploy.supervisor import read_state

HOME = Path(".isthmus")  # where topologies started from this folder keep data and logs

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="ISTHMUS_BOOTSTRAP",
        help="HOST:PORT[,HOST:PORT…] of a cluster, or the name of a datacenter of a topology that was started here.",
    ),
]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
START_TIMEOUT_MS = 3_000  # a person waits; who starts a broker at the same time may try again


def resolve(bootstrap: str, home: Path | None = None) -> str:
    """Addresses as they are; a datacenter's name by the addresses its topology keeps. Where several topologies have a
    datacenter of that name, it is the one that runs; DeployError when that does not tell."""
    if ":" in bootstrap:
        return bootstrap
    kept = _kept(home)
    found = {folder: addresses[bootstrap] for folder, addresses in kept.items() if bootstrap in addresses}
    if len(found) > 1:
        found = {each: found[each] for each in found if (state := read_state(each)) and state.running} or found
    if len(found) > 1:
        places = ", ".join(f"{address} of {folder.name}" for folder, address in found.items())
        raise DeployError(f"several topologies have a datacenter '{bootstrap}': say which by its address, {places}")
    if not found:
        known = f"datacenters known here: {', '.join(_names(kept))}"
        if not kept:
            known = f"nothing was started from {Path.cwd()}; names are known where `isthmus up` was called"
        raise DeployError(f"'{bootstrap}' is neither HOST:PORT nor the name of a datacenter ({known})")
    return next(iter(found.values()))


def _kept(home: Path | None = None) -> dict[Path, dict[str, str]]:
    """The addresses of datacenters, by name, of each topology that was started from this folder."""
    return {file.parent: kept_addresses(file.parent) for file in sorted((home or HOME).glob(f"*/{KEPT}"))}


def _names(kept: dict[Path, dict[str, str]]) -> list[str]:
    return sorted({name for addresses in kept.values() for name in addresses})


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    """A started client, closed at the end. Raises DeployError where none of the default's brokers answers, and there
    are datacenters that may have been meant."""
    client = Client(resolve(bootstrap), client_id="isthmus-cli")
    try:
        try:
            await client.start(START_TIMEOUT_MS)
        except ConnectionLost as error:
            if bootstrap != DEFAULT_BOOTSTRAP or not (names := _names(_kept())):
                raise
            raise DeployError(f"{error} (-b takes the names of datacenters, too: {', '.join(names)})") from error
        yield client
    finally:
        await client.close()
