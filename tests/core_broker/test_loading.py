"""What is loaded once a broker serves, so that a package that is replaced under it breaks nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus
from isthmus.core_broker import loading
from isthmus.core_broker.loading import FIRST_AFTER_S, PAUSE_S, Loading
from tests.simulation.runner import Simulation, run_checked

REPLACED = """
import asyncio, shutil, sys
from isthmus.core_broker import loading
from isthmus.core_broker.broker import Broker
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.server.dispatch import SERVED
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.runtime import system

loading.FIRST_AFTER_S = loading.PAUSE_S = 0.0
folder, waits = sys.argv[1], sys.argv[2] == "loaded"

async def main():
    options = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{folder}/data"}
    broker = Broker(BrokerConfig(options), system(), RealFiles(2))
    await broker.start()
    while waits and broker._loading._left:
        await asyncio.sleep(0)
    shutil.rmtree(f"{folder}/isthmus")
    missing = []
    for key, (_, last) in SERVED.items():
        try:
            assert broker._server.routes[key << 16 | last] is not None
        except ModuleNotFoundError:
            missing.append(key)
    await broker.stop()
    print(len(missing))

asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["loaded", "at once"])
def test_package_that_is_replaced_under_a_broker_breaks_no_request(tmp_path: Path, when: str) -> None:
    """The control: at once, before anything is loaded, it breaks most of them."""
    source = Path(isthmus.__file__).resolve().parent
    shutil.copytree(source, tmp_path / "isthmus", ignore=shutil.ignore_patterns("__pycache__", "static"))
    command = [sys.executable, "-c", REPLACED, str(tmp_path), when]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing = int(done.stdout.splitlines()[-1])
    assert missing == 0 if when == "loaded" else missing > 20, done.stdout


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'b'"),
        SyntaxError("half a file"),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    ],
)
def test_modules_come_one_at_a_time_after_the_first_clients(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    found: list[tuple[float, str]] = []

    async def main(sim: Simulation) -> None:
        def load(name: str) -> None:
            found.append((sim.loop.time() - began_s, name))
            if name == "b":
                raise error

        monkeypatch.setattr(loading, "import_module", load)
        began_s = sim.loop.time()
        Loading(["a", "b", "c"]).start()
        await sim.sleep(10)
        stopped = Loading(["d", "e"])
        began_s = sim.loop.time()
        stopped.start()
        await sim.sleep(FIRST_AFTER_S + PAUSE_S / 2)
        stopped.stop()
        await sim.sleep(10)

    run_checked(main)
    assert [name for _, name in found] == ["a", "b", "c", "d"]
    expected = [FIRST_AFTER_S, FIRST_AFTER_S + PAUSE_S, FIRST_AFTER_S + 2 * PAUSE_S, FIRST_AFTER_S]
    assert [when_s for when_s, _ in found] == pytest.approx(expected, abs=1e-4)
    assert "cannot load module b" in caplog.text
