"""Both forms of the record code: as imported, and `_records.py` run as plain Python whatever is built beside it."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

import isthmus.protocol as package
from isthmus.protocol import _records, records

_FOLDER = Path(records.__file__).parent


def _load(file: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _FOLDER / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_plain() -> tuple[ModuleType, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loops = _load("_records.py", "isthmus.protocol._records_plain")
    sys.modules[_records.__name__] = loops
    package._records = loops  # type: ignore[attr-defined, assignment]
    try:
        return _load("records.py", "isthmus.protocol.records_plain"), caught
    finally:
        sys.modules[_records.__name__] = _records
        package._records = _records  # type: ignore[attr-defined]


PLAIN, PLAIN_WARNINGS = _load_plain()
COMPILED = records

FORMS = {"compiled": COMPILED, "plain": PLAIN}
