"""A stream worker as a process: `python -m isthmus.streams path/to/file.py:app --bootstrap HOST:PORT`.

Or any command of an app: `python -m isthmus.streams -A module:app tables`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from .command.tree import BUILT_IN
from .command.tree import main as run_commands
from .command.worker import EXIT_CONFIG


def main() -> NoReturn:
    given = sys.argv[1:]
    if given and given[0] in BUILT_IN:
        print(f"error: say whose: python -m isthmus.streams -A module:app {' '.join(given)}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)
    if given and not given[0].startswith("-"):
        given = ["-A", given[0], "worker", *given[1:]]
    elif not given or given == ["--help"]:
        print(__doc__)
        sys.exit(0 if given else EXIT_CONFIG)
    run_commands(arguments=given)


if __name__ == "__main__":
    main()
