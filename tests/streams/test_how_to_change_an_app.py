"""The code of docs/how-to/change-a-running-app.md, run as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from isthmus.streams import App
from isthmus.streams.aggregates import Count, Sum
from isthmus.streams.engine.versions import path

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/change-a-running-app.md"


def test_the_page_migrates_its_table_and_its_windows() -> None:
    first, migrated, windows, tested, steps = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    old: dict[str, Any] = {}
    exec(compile(first, str(PAGE), "exec"), old)
    new: dict[str, Any] = {}
    body = "totals[event.key] = {**totals[event.key]}"
    exec(compile(first.partition("totals = ")[0] + migrated, str(PAGE), "exec"), new)
    reads = first.partition("totals = app.Table")[2].partition("\n")[2]
    exec(compile(reads.replace('totals[event.key] += event.value["total"]', body), str(PAGE), "exec"), new)
    table = App("windows").Table("per_minute", version=2)
    table.tumbling(120)
    found = {"per_minute": table}
    exec(compile(windows, str(PAGE), "exec"), found)
    [step] = path(table.spec, {"version": 1})
    assert step.function(("k", 180_000), 2) == (("k", 120_000), 2) and step.merge is not None and step.merge(1, 2) == 3
    test = {"old": SimpleNamespace(**old), "shop": SimpleNamespace(**new)}
    exec(compile(tested, str(PAGE), "exec"), test)
    test["test_totals_are_migrated"]()  # type: ignore[operator]
    app = App("steps")
    exec(compile(steps, str(PAGE), "exec"), {"app": app, "Count": Count, "Sum": Sum, "add": lambda both, order: both})
    assert [app.pipeline.graph.specs[table].version for table in ("minutes", "sums")] == [2, 2]
