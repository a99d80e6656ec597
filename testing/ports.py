"""Ports that are held from the moment they are chosen, so that runs beside each other never want the same.

A held port is a socket that is bound and never listens. Linux gives its port to nobody who asks for any free one, nor
to outgoing connections, while one who names the port and sets SO_REUSEADDR, as asyncio, uvloop and Docker do, may
listen on it: so it stays ours while its broker is dead, too.
"""

from __future__ import annotations

import errno
import socket

from .errors import IsthmusTestingError


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

    def held(self, listen: str, what: str) -> str:
        """HOST:PORT of a port that is held, as `listen` says it, where 0 is any free one."""
        host, _, port = listen.rpartition(":")
        return f"{host}:{self.take(host, int(port), what)}"

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
