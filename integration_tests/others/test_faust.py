"""faust-streaming, unmodified, on our broker: an app in the shape of its word count, stopped and started."""

from __future__ import annotations

import json
import sys
import venv
from collections import Counter
from pathlib import Path

import pytest

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.clients.records import create_topics

from .clients import HERE, run
from .processes import last_values, produce, running, until

pytestmark = pytest.mark.soak

LOCK = ROOT / "requirements" / "faust.lock"
PARTITIONS = 4


@pytest.fixture(scope="module")
def faust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, in an environment of its own: its packages are older than ours."""
    folder = tmp_path_factory.mktemp("faust")
    venv.create(folder / "venv", symlinks=True)
    packages = folder / "packages"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    run([*pip, "--require-hashes", "--no-deps", "--target", packages, "--requirement", LOCK], folder)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    (site / "faust.pth").write_text(f"{packages}\n")
    return folder / "venv" / "bin" / "python"


class App:
    """One of the apps on a broker; its tables are what its changelogs say."""

    def __init__(self, name: str, faust: Path, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.environment = {"BROKER": f"kafka://{bootstrap}", "PYTHONPATH": str(HERE / "faust")}
        self.command = [str(faust), "-m", "faust", "-A", name, "worker", "--without-web", "-l", "info"]

    def goes_on(self, state: str, table: str, expected: dict) -> None:
        """Run it, with no files of an earlier run, until its table is as expected."""
        folder = self.folder / state
        folder.mkdir()
        with running(self.command, folder, "worker", self.environment) as log:
            until(
                lambda: self.table(table) == expected,
                lambda: f"{self.table(table)}\nis not\n{expected}\n{log.read_text(errors='replace')[-3000:]}",
            )

    def table(self, changelog: str) -> dict:
        found = last_values(self.bootstrap, changelog)
        rows = {_key(key): json.loads(value) for key, value in found.items() if value is not None}
        return dict(sorted(rows.items()))


def _key(data: bytes | None) -> str:
    text = (data or b"").decode()
    return text if not text.startswith(('"', "[")) else json.dumps(json.loads(text)).strip('"')


def test_word_count(faust: Path, isthmus_broker: BrokerProcess, tmp_path: Path) -> None:
    bootstrap = isthmus_broker.bootstrap
    create_topics(bootstrap, ["posts"], PARTITIONS)
    app = App("word_count", faust, bootstrap, tmp_path)
    counts: Counter[str] = Counter()
    for state in ("first", "second"):
        posts = [f"the quick fox {n % 5} the end" for n in range(50)]
        produce(bootstrap, "posts", [(None, post.encode()) for post in posts], "gzip")
        for post in posts:
            counts.update(post.split())
        app.goes_on(state, "words-counts-changelog", dict(sorted(counts.items())))
