"""Ports that are held from the moment they are chosen, so that runs beside each other never want the same.

A held port is a socket that is bound and never listens. Linux gives its port to nobody who asks for any free one, nor
to outgoing connections, while one who names the port and sets SO_REUSEADDR, as asyncio, uvloop and Docker do, may
listen on it: so it stays ours while its broker is dead, too.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from .errors import IsthmusTestingError

if TYPE_CHECKING:
    from ..deploy.topology import Datacenter

ANY = "127.0.0.1:0"


class Ports:
    """The ports that one run holds, until `release`."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, host: str, port: int = 0, what: str = "") -> int:
        """Hold a port of `host`; 0: any free one. `what` says in errors what it is for."""
        held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            if port:  # connections of an earlier listener may still be in TIME_WAIT
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, port))
        except OSError as error:
            held.close()
            raise _refused(error, host, port, what) from None
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.append(held)
        return int(held.getsockname()[1])

    def of_datacenter(self, name: str, datacenter: Datacenter, fixed: bool) -> str:
        """HOST:PORT of each of its brokers, with commas between: as its `listen` says, or else any of loopback."""
        found = []
        for listen in datacenter.listens if fixed else [ANY] * datacenter.brokers:
            host, _, port = listen.rpartition(":")
            found.append(f"{host}:{self.take(host, int(port), f'datacenter {name}')}")
        return ",".join(found)

    def release(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()


def _refused(error: OSError, host: str, port: int, what: str) -> IsthmusTestingError:
    name = f"{what}: " if what else ""
    if error.errno == errno.EADDRINUSE and port:
        return IsthmusTestingError(
            f"{name}port {port} of {host} is taken: stop what listens there (`ss -ltnp`), or name no port and a free "
            "one is chosen"
        )
    where = f"port {port} of {host}" if port else host
    return IsthmusTestingError(f"{name}nothing can listen on {where}: {error.strerror}")
