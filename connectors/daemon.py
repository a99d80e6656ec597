"""Spark's Python daemon, with one difference: what a worker has loaded is not searched for garbage after every task.

Spark collects garbage between two tasks, which takes 10 to 30 ms over all the objects of pyspark and pyarrow; frozen
once, they cost nothing more. Set by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc

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


if __name__ == "__main__":
    daemon.gc = Collector()  # type: ignore[assignment]
    daemon.manager()
