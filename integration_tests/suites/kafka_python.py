"""kafka-python's own integration tests, from its source archive on PyPI, pinned by hash, run on a broker.

Nothing of them is kept: the archive is taken when the tests run, into a folder that goes with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from integration_tests.brokers import ROOT

LOCK = ROOT / "requirements" / "suites.lock"
# What they expect of a broker, beside the node id 0 and that topics are made when they are used.
OPTIONS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "num.partitions": 4,
}
NODE_ID = 0
NEWEST_KNOWN = "4.3.0"  # of Kafka, to this release: its table of versions ends there
TEST_TIMEOUT_S = 40
RUN_TIMEOUT_S = 900
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Suite:
    """The tests, ready to run, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archives = folder / "archives"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        source = ["--no-deps", "--require-hashes", "--no-binary", "kafka-python", "--no-build-isolation"]
        _run([*pip, "download", *source, "--requirement", str(LOCK), "--dest", str(archives)])
        helpers = [str(path) for path in archives.glob("*.whl")]
        self.packages = folder / "packages"
        _run([*pip, "install", "--no-deps", "--no-index", "--target", str(self.packages), *helpers])
        [archive] = archives.glob("kafka_python-*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extraction_filter = getattr(tarfile, "data_filter", None)  # which Python has from 3.11.4 on
            opened.extractall(folder)
        self.root = folder / archive.name.removesuffix(".tar.gz")
        (self.root / "test" / "__init__.py").touch()  # left out of the archive, as is the next
        shutil.copy(Path(__file__).with_name("kafka_python_service.py"), self.root / "test" / "service.py")

    def run(self, address: str, only: Sequence[str] = ()) -> dict[str, str]:
        """What comes of each test on a broker: PASSED, FAILED or SKIPPED by the test's name. only: these alone."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "KAFKA_ROOT": str(self.folder),
            "KAFKA_URI": f"kafka://{address}",
            "KAFKA_VERSION": NEWEST_KNOWN,
            "PYTHONPATH": str(self.packages),
        }
        options = ["-o", "addopts=", f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal", "-p", "no:cacheprovider"]
        # The tests of TLS start brokers of their own whatever is there.
        tests = list(only) or ["test/integration", "--ignore=test/integration/test_ssl_integration.py"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options, f"--junitxml={report}", *tests],
            cwd=self.root, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
        )  # fmt: skip
        assert report.exists(), f"the tests did not run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """What a JUnit report says of each test; one that failed in its set-up or tear-down failed."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.attrib["classname"].replace(".", "/")
        name = f"{module}.py::{case.attrib['name']}"
        if case.find("failure") is not None or case.find("error") is not None:
            found[name] = FAILED
        else:
            found.setdefault(name, SKIPPED if case.find("skipped") is not None else PASSED)
    return found


Side = dict[str, set[str]]  # all that came of each test; more than one where it was run again


def differing(ours: Side, theirs: Side) -> list[str]:
    """The tests of which nothing that came on one side came on the other."""
    return [name for name in sorted({*ours, *theirs}) if not ours.get(name, set()) & theirs.get(name, set())]


def table(ours: Side, theirs: Side) -> str:
    """Both sides, test by test, and how many of each kind."""
    names = sorted({*ours, *theirs})
    different = dict.fromkeys(differing(ours, theirs), "DIFFERS")
    rows = [("", "Isthmus", "Kafka", "")]
    rows += [(name, _said(ours.get(name)), _said(theirs.get(name)), different.get(name, "")) for name in names]
    rows += [(kind, _count(ours, kind), _count(theirs, kind), "") for kind in (PASSED, FAILED, SKIPPED)]
    width = max(map(len, names))
    return "\n".join(f"{name:{width}}  {mine:16}{yours:16}{mark}".rstrip() for name, mine, yours, mark in rows)


def _said(outcomes: set[str] | None) -> str:
    return "/".join(sorted(outcomes)) if outcomes else "missing"


def _count(side: Side, kind: str) -> str:
    return str(sum(kind in outcomes for outcomes in side.values()))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-2000:]}"
