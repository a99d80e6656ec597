"""Commands that an app declares with `@app.command`; `command/` makes a command line of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import AppError


class DeclaredCommand(NamedTuple):
    """name: what is typed; None: as click makes it of the function's name. options: click's decorators, of `option` and
    `argument`. base: the class of what the function is given; None: `AppCommand`."""

    name: str | None
    function: Callable[..., Any]
    options: tuple[Any, ...]
    base: Any = None

    @property
    def takes_self(self) -> bool:
        """Whether the function's first argument is the command, as in Faust: where the first one has no option."""
        return bool(inspect.signature(self.function).parameters)


def declared(function: Any, options: tuple[Any, ...], name: str | None, base: Any = None) -> DeclaredCommand:
    if not inspect.iscoroutinefunction(function):
        raise AppError(f"@app.command needs an async function, and {getattr(function, '__name__', function)} is none")
    for each in options:
        if not callable(each):
            raise AppError(f"@app.command takes option(…) and argument(…), not {each!r}: write @app.command()")
    if base is not None and not (isinstance(base, type) and hasattr(base, "tabulate")):
        raise AppError(f"@app.command takes a subclass of AppCommand as base=, not {base!r}")
    return DeclaredCommand(name, function, options, base)
