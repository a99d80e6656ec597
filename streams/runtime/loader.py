"""Loads an app by name: `path/to/file.py:app`, `module:app`, or a module that has one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from ..api.app import App
from ..errors import AppError

_OURS = f"{Path(__file__).parent.parent}{os.sep}"  # files of this package


def find(name: str) -> App:
    """The app that `path/to/file.py:app`, `module:app`, `module.app`, or a module with an `app` names."""
    where, colon, attribute = name.rpartition(":")
    if not colon:
        where, attribute = name, "app"
    is_path = where.endswith(".py") or "/" in where
    if not attribute or ":" in where or not (is_path or all(where.split("."))):
        raise AppError(f"'{name}' names no app: say path/to/file.py:app, or module:app")
    if is_path and not where.endswith(".py"):
        raise AppError(f"{where} is no file of Python: say path/to/file.py:app, or module:app")
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise AppError(f"there is no file {where}")
        sys.path.insert(0, str(path.parent))  # as Python does for a script: the app's own modules are in that folder
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with loading(where):
            spec.loader.exec_module(module)
    else:
        sys.path.insert(0, "")
        with loading(where):
            try:
                module = importlib.import_module(where)
            except ModuleNotFoundError as error:
                parent, dot, last = where.rpartition(".")
                if colon or not dot or error.name != where:
                    raise
                module, attribute = importlib.import_module(parent), last
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        apps = [known for known, value in vars(module).items() if isinstance(value, App)]
        raise AppError(f"{where} has no App called {attribute}" + (f"; it has {', '.join(apps)}" if apps else ""))
    return app


@contextlib.contextmanager
def loading(where: str) -> Iterator[None]:
    """An app that cannot be loaded now cannot be loaded later: AppError names the line of the app's that did it;
    ISTHMUS_DEBUG=1 shows all."""
    try:
        yield
    except AppError as error:
        if type(error) is not AppError or os.environ.get("ISTHMUS_DEBUG"):
            raise
        raise AppError(f"{_place(error)}: {error}") from None
    except Exception as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError) and error.name and where.startswith(error.name):
            raise AppError(f"module {error.name}, which '{where}' imports, does not exist") from None
        if isinstance(error, SyntaxError):
            place, words = f"{error.filename or where}:{error.lineno or 1}", error.msg
        else:
            place, words = _place(error), str(error)
        raise AppError(f"{where} cannot be loaded: {place}: {type(error).__name__}: {words}") from None


def _place(error: Exception) -> str:
    """FILE:LINE of the last call that is no call within this package, since that is where something can be mended."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    last = next((frame for frame in reversed(frames) if not frame.filename.startswith(_OURS)), frames[-1])
    return f"{last.filename}:{last.lineno}"
