"""`python -m isthmus.testing`: what tests have left on this machine; `--remove` removes it.

Left is what belongs to a process that is gone. `--all` adds what other machines or earlier boots made in the same
Docker engine, of which nothing is known but its label.
"""

from __future__ import annotations

import argparse
import sys

from ..deploy import engine
from . import labels
from .owner import Owner, left_folders, remove_left_folders


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m isthmus.testing", description="What tests have left behind.")
    parser.add_argument("--remove", action="store_true", help="remove it")
    parser.add_argument("--all", action="store_true", help="also of other machines and earlier boots, in Docker")
    options = parser.parse_args(arguments)
    left = [str(folder) for folder in left_folders()]
    owners: list[str] = []
    try:
        engine.require()
        owners = [name for name in labels.owners() if options.all or _is_left(name)]
        for owner in owners:
            left += [f"Docker {each}" for each in labels.found(owner)]
            if options.remove:
                labels.remove(owner)
    except engine.EngineError as error:
        print(f"Docker was not asked: {error}", file=sys.stderr)
    if options.remove:
        remove_left_folders()
    print("\n".join([*left, f"{len(left)} left behind{', removed' if left and options.remove else ''}"]))
    return 0


def _is_left(name: str) -> bool:
    owner = Owner.parse(name)
    return owner is not None and owner.gone


if __name__ == "__main__":
    sys.exit(main())
