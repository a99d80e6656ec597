"""Both forms of the record code: as imported, and the compiled modules run as plain Python whatever is built."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import isthmus.protocol as package
from isthmus.protocol import _batch_header, _columns, _compaction, _records, _walk, _writing, compaction, records

_FOLDER = Path(records.__file__).parent


def _load(file: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _FOLDER / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_plain() -> tuple[dict[str, ModuleType], list[warnings.WarningMessage]]:
    """`records` and `compaction` over plain loops: each module is loaded while the plain ones stand in sys.modules."""
    shared = {
        "_batch_header": _batch_header,
        "_columns": _columns,
        "_records": _records,
        "_writing": _writing,
        "records": records,
        "_compaction": _compaction,
        "compaction": compaction,
        "_walk": _walk,
    }
    plain: dict[str, ModuleType] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for name in shared:
                plain[name] = _load(f"{name}.py", f"{package.__name__}.{name}_plain")
                sys.modules[f"{package.__name__}.{name}"] = plain[name]
                setattr(package, name, plain[name])
        finally:
            for name, module in shared.items():
                sys.modules[f"{package.__name__}.{name}"] = module
                setattr(package, name, module)
    return plain, caught


_PLAIN, PLAIN_WARNINGS = _load_plain()
PLAIN = _PLAIN["records"]
COMPILED = records


def decode_columns(form: ModuleType, buf: Any, **options: Any) -> Any:
    """All columns in one piece."""
    (found,) = form.iter_columns(buf, **{"piece_bytes": 1 << 30, **options})
    return found


FORMS = {"compiled": COMPILED, "plain": PLAIN}
COMPACTION_FORMS = {"compiled": compaction, "plain": _PLAIN["compaction"]}
WALK_FORMS = {"compiled": _walk, "plain": _PLAIN["_walk"]}
