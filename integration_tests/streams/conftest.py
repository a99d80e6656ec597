"""Which broker the stream layer's tests run on: ours, or stock Kafka's (`--streams-on kafka`, in `make soak`); and what
of faust-streaming they run beside it."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.others.environments import lock

AT_ONCE = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | SimpleNamespace]:
    """One for a test module. Of stock Kafka's there is the address alone (`bootstrap`)."""
    if request.config.getoption("--streams-on") == "kafka":
        yield SimpleNamespace(bootstrap=request.getfixturevalue("kafka"))
    else:
        with running_broker(tmp_path_factory.mktemp("streams"), AT_ONCE) as made:
            yield made


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `python` has made the packages of faust-streaming."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of faust-streaming's source distribution, by the hash in `requirements/faust.lock`; skips where the package
    index cannot be reached."""
    folder = tmp_path_factory.mktemp("examples")
    [pinned] = re.findall(r"^faust-streaming==.*(?:\n    --hash.*)+", lock("faust").read_text(), re.MULTILINE)
    (folder / "pinned.txt").write_text(pinned)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--require-hashes"]
    command += ["--no-binary", "faust-streaming", "--dest", str(folder), "-r", str(folder / "pinned.txt")]
    fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"faust-streaming's source cannot be fetched: {fetched.stderr[-300:]}")
    [source] = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    return folder / source.name.removesuffix(".tar.gz") / "examples"
