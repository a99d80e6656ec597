"""The model classes of a process by namespace: the name that `__faust` has in a record's JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

BLESSED_KEY = "__faust"  # the key of a record's JSON object whose value names its class: {"ns": namespace}


class Namespaces:
    """The model classes of this process, which come in by their definition alone. The latest of a name counts."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self.chosen_by_name: dict[str, Any] = {}  # those that the JSON of any record may name

    def add(self, model: Any) -> None:
        options = model._options
        self.models[options.namespace] = model
        if options.allow_blessed_key or options.polymorphic_fields:
            self.chosen_by_name[options.namespace] = model
        else:
            self.chosen_by_name.pop(options.namespace, None)


def namespace_of(cls: type) -> str:
    """Module and name of a class; the module that Python was started with has the name of its file, as in Faust."""
    module = cls.__module__
    return f"{main_name() if module == '__main__' else module}.{cls.__qualname__}"


def main_name() -> str:
    """The name that the module which Python was started with would be imported by."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        return "__main__"
    path = Path(file).absolute()
    packages: list[str] = []
    while (path.parent / "__init__.py").exists() and path.parent != path:
        path = path.parent
        packages.insert(0, path.stem)
    return ".".join([*packages, Path(file).stem])
