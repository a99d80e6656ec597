"""Imports modules of an app, so that what they declare is known."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from ..errors import AppError


def discover(names: Iterable[str]) -> None:
    """Import these modules, and of packages all modules in them, except tests and `__main__`. Raises AppError for one
    that is not there; what importing one raises."""
    for name in names:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                raise AppError(f"autodiscover names module {name}, which does not exist") from None
            raise
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            last = found.name.rpartition(".")[2]
            if last != "__main__" and not last.startswith("test_"):
                importlib.import_module(found.name)
