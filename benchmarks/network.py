"""The congestion control that brokers and clients of a run have, where it is not to be the system's."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_SET_UP = (
    f'ip link set lo up && echo "$0" > {_CONTROL} && [ "$(cat {_CONTROL})" = "$0" ] && exec "$@"'
    ' || { echo "benchmarks: no connections with $0 here; those without rights of root may have reno" >&2; exit 2; }'
)


def congestion_control() -> str:
    """What a connection has that does not choose for itself, in this network namespace."""
    return _CONTROL.read_text().strip()


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--congestion-control", metavar="NAME", help="of all connections (default: the system's)")


def take(given: argparse.Namespace, module: str) -> None:
    """What the option says; the module is run anew by the same command line where the connections here have another."""
    if given.congestion_control not in (None, congestion_control()):
        _begin_again(given.congestion_control, [sys.executable, "-m", module, *sys.argv[1:]])


def _begin_again(control: str, command: Sequence[str]) -> NoReturn:
    """Run a command in place of this process, in a network namespace of its own whose connections have `control`.

    For what the clients send: BBR, which some systems have for all connections, paces it within a machine too, so
    that a producer's rate is its timer's. Nobody else's connections change.
    """
    unshare = ["unshare", "--user", "--map-root-user", "--net"]
    os.execvp(unshare[0], [*unshare, "sh", "-c", _SET_UP, control, *command])
