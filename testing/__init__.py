"""Isthmus for the tests of those who use it: one broker, or a whole topology whose WAN can be cut.

`IsthmusContainer` and `IsthmusTopology` run in Docker or, by the same names, as processes on this machine;
`ISTHMUS_TESTING=docker|local` says which (see `choice`). `plugin` makes pytest fixtures of both. Nothing is imported
before it is asked for: pytest loads the plugin in every run of every project that has this package installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choice import Backend, choose
    from .container import IsthmusContainer
    from .errors import IsthmusTestingError
    from .status import MirrorStatus
    from .topology import IsthmusTopology

__all__ = ["Backend", "IsthmusContainer", "IsthmusTestingError", "IsthmusTopology", "MirrorStatus", "choose"]
_HOMES = {
    "Backend": "choice",
    "IsthmusContainer": "container",
    "IsthmusTestingError": "errors",
    "IsthmusTopology": "topology",
    "MirrorStatus": "status",
    "choose": "choice",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{__name__} needs the package {error.name}: pip install 'isthmus[testing]'") from None
