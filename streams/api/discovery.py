"""Imports modules of an app, so that what they declare is known."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import pkgutil
from collections.abc import Iterable

from ..errors import AppError

log = logging.getLogger("isthmus.streams")


def discover(names: Iterable[str]) -> None:
    """Import these modules, and of packages all modules in them, except tests and `__main__`. Raises AppError for one
    that is not there; what importing one raises."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name == error.name or name.startswith(f"{error.name}.")):
                raise AppError(f"autodiscover names module {name}, which does not exist") from None
            raise
        _import_all(name)


def _import_all(package: str, may_fail: bool = False) -> None:
    path = getattr(importlib.import_module(package), "__path__", ())
    for found in pkgutil.walk_packages(path, f"{package}.", onerror=lambda _: None):
        last = found.name.rpartition(".")[2]
        if last == "__main__" or last.startswith("test_"):
            continue
        try:
            importlib.import_module(found.name)
        except Exception:
            if not may_fail:
                raise
            log.warning("%s cannot be imported: agents in it are not known", found.name, exc_info=True)


def set_up_django() -> None:
    """Where the environment says that the program is one of Django: have it read its settings."""
    if _is_of_django():
        importlib.import_module("django").setup()


def discover_installed_apps() -> None:
    """Import all modules of Django's `INSTALLED_APPS`, which is set up, but Django's own. Some are meant for programs
    that have what others do not, and cannot be imported: a warning says so."""
    if _is_of_django():
        for config in importlib.import_module("django.apps").apps.get_app_configs():
            if not config.name.startswith("django."):
                _import_all(config.name, may_fail=True)


def _is_of_django() -> bool:
    return bool(os.environ.get("DJANGO_SETTINGS_MODULE")) and importlib.util.find_spec("django") is not None
