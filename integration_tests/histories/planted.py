"""The broker's process with one of the simulator's bugs planted: `planted.py PLANT`, then a broker's arguments.

The control of the histories. With `committed-without-followers`, for one, a leader acknowledges before replication.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # brokers are started in their own folder

from isthmus.core_broker.__main__ import main

PLANTS = importlib.import_module("tests.simulation.cluster_plants").PLANTS  # tests have no types

if __name__ == "__main__":
    plant, *arguments = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        PLANTS[plant](stack)
        sys.exit(main(arguments))
