"""The broker's process with a bug planted, one of the simulator's or of the transactions': `planted.py PLANT`, then a
broker's arguments.

The control of the histories. With `committed-without-followers`, for one, a leader acknowledges before replication.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # brokers are started in their own folder

from integration_tests.histories import transactional_plants
from isthmus.core_broker.__main__ import main

Plant = Callable[[contextlib.ExitStack], None]
PLANTS: dict[str, Plant] = {
    **importlib.import_module("tests.simulation.cluster_plants").PLANTS,  # tests have no types
    **transactional_plants.PLANTS,
}

if __name__ == "__main__":
    plant, *arguments = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        PLANTS[plant](stack)
        sys.exit(main(arguments))
