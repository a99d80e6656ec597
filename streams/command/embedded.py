"""`Worker`: starts an app from a program of the user's own rather than from its command line, as in Faust."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ...readiness import Readiness
from ..api import absent
from ..api.app import App
from .worker import run_worker, set_up_logging


class Worker:
    """loglevel, logfile: of the log, to stderr by default. bootstrap: brokers, instead of the app's. name: one that no
    other worker of the app has at a time, and the same after a restart."""

    def __init__(
        self,
        app: App,
        *,
        loglevel: str = "info",
        logfile: str | None = None,
        quiet: bool = False,
        bootstrap: str | None = None,
        name: str | None = None,
    ) -> None:
        self.app = app
        self.loglevel = loglevel
        self.logfile = logfile
        self.quiet = quiet
        self.bootstrap = bootstrap
        self.name = name

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(absent.said("Worker", name, dir(type(self))))

    def execute_from_commandline(self) -> NoReturn:
        """Run until a signal, and exit."""
        set_up_logging(self.app, self.loglevel, self.logfile)
        sys.exit(run_worker(self.app, Readiness.take(), bootstrap=self.bootstrap, name=self.name, quiet=self.quiet))

    async def start(self) -> None:
        """Run in this loop; returns when the worker has joined its group. Raises what keeps it from that."""
        if self.bootstrap is not None:
            self.app.conf.update({"broker": self.bootstrap})
        await self.app.start()

    async def stop(self) -> None:
        """Write the last checkpoint, and leave. Raises the error by which the worker has ended."""
        await self.app.stop()
