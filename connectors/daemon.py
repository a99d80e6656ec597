"""Spark's Python daemon, with two differences; set by `spark.python.daemon.module`.

What a worker has loaded is not searched for garbage after every task: that takes 10 to 30 ms over all the objects of
pyspark and pyarrow, and frozen once they cost nothing more. And a worker whose rows nobody wants any more, as after
`show()`, ends without a traceback.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon


class Collector:
    """Stands in for the module `gc` in Spark's daemon."""

    frozen = False

    def collect(self) -> None:
        """After each task; runs in a worker, which is a fork of the daemon."""
        gc.collect()
        if not self.frozen:
            self.frozen = True
            gc.freeze()


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Spark's worker; its exit code."""
    try:
        return WORKER(sock, authenticated)
    except BrokenPipeError:
        return 1  # not to be used again


WORKER = daemon.worker

if __name__ == "__main__":
    daemon.gc = Collector()  # type: ignore[assignment]
    daemon.worker = worker
    daemon.manager()
