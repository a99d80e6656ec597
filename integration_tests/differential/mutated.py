"""`python mutated.py MUTANT ...`: a broker with one fault, for test_mutants.py; the rest are a broker's arguments."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from integration_tests.differential.mutants import mutate

    mutate(sys.argv[1])
    from isthmus.core_broker.server import _fetch, _produce

    _fetch.COMPILED = _produce.COMPILED = False  # the faults are in the long ways of requests
    from isthmus.core_broker.__main__ import main

    sys.exit(main(sys.argv[2:]))
