"""The tutorial of orders and payments, by its own commands: two datacenters, a hub, and what comes of their orders."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from integration_tests.brokers import ROOT
from integration_tests.console.commands import environment

EXAMPLE = ROOT / "examples" / "orders"
PAGE = ROOT / "docs" / "tutorial" / "orders.md"
STEP_TIMEOUT_S = 100.0  # each command of it ends by itself before


def commands() -> str:
    """What stands indented in the steps that produce and consume, without `isthmus up` before them."""
    steps = PAGE.read_text().partition("    isthmus up\n")[2].partition("## 7. ")[0]
    return "\n".join(line[4:] for line in steps.splitlines() if line.startswith("    ") and "curl" not in line)


def test_the_commands_of_the_tutorial_give_its_answers(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__"))

    def shell(script: str) -> str:
        command = (
            f'isthmus() {{ timeout 50 {shlex.quote(sys.executable)} -m isthmus.console.main "$@"; }}\nset -e\n{script}'
        )
        env = environment({"WEB_PORT": "0", "PATH": os.environ["PATH"]})
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path / "shop", env=env, capture_output=True, text=True,
            timeout=STEP_TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        shell("isthmus up")
        said = shell(commands())
    finally:
        shell("isthmus down")
    assert re.search(r"^ann +3000 ", said, re.MULTILINE), said  # the committed table
    records = [line.partition("\t") for line in said.splitlines() if "\t" in line]
    answers = [(key, json.loads(value)) for key, _, value in records]
    sums = {key: value["value"] for key, value in answers if "start_ms" in value}
    assert sums == {"ann": 3000, "dan": 500}
    told = sorted((key, value["customer"], value["paid"]) for key, value in answers if "paid" in value)
    assert told == [("f2", "", True), ("f2", "bob", False), ("f3", "cid", False)]
    assert ("f3", {"order": "f3"}) in answers  # the dead letter
