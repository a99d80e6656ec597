"""What is compiled in the broker does the same as plain Python: its tests run again in a process that has only that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "storage.disk._data_file storage.log._indexes storage.log._limits storage.log._producers storage.log._segment "
    "storage.log._tail storage.log._ranges replication._core "
    "server._context server._route server._frames server._wanted server._sending"
).split()
PLAIN = tuple(f"isthmus.core_broker.{name}" for name in MODULES)
TESTS = (
    "storage/log/test_append.py",
    "storage/disk/test_files.py",
    "storage/log/test_index.py",
    "storage/log/test_producers.py",
    "storage/log/test_read.py",
    "replication/test_partition.py",
    "server/apis/test_cold_fetch.py",
    "server/apis/test_fetch.py",
    "server/apis/test_fetch_session_histories.py",
    "server/apis/test_produce.py",
    "server/test_fetch_sessions.py",
    "server/test_cold_sends.py",
    "server/test_sending.py",
)
RUN = """
import importlib.abc, importlib.util, sys
import pytest

class Plain(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in sys.argv[1].split(","):
            return None
        return importlib.util.spec_from_file_location(name, f"{path[0]}/{name.rpartition('.')[2]}.py")

sys.meta_path.insert(0, Plain())
for name, what in (("_produce", "ProduceAtOnce"), ("_fetch", "FetchAtOnce")):  # they are of compiled code alone
    sys.modules["isthmus.core_broker.server." + name] = module = type(sys)(name)
    module.COMPILED = False
    setattr(module, what, None)
from isthmus.core_broker.storage.log import _tail
from isthmus.core_broker.server import _frames
assert all(each.__file__.endswith(".py") and not each.COMPILED for each in (_tail, _frames))
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def test_the_plain_form_passes_the_tests_of_the_compiled_one() -> None:
    chosen = [str(Path(__file__).parent / name) for name in TESTS]
    command = [sys.executable, "-c", RUN, ",".join(PLAIN), *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "[100%]" in done.stdout
