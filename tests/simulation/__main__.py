"""`python -m tests.simulation [--scenario X] [--seeds N]`: run seeds, say which failed and how to see one again."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys

from . import tables
from .batch import run_seeds
from .controls import PLANTS, planted
from .runner import Result, run
from .scenarios import SCENARIOS, load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="default: all; repeatable")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="one seed, with its report")
    parser.add_argument("--processes", type=int, default=2, help="1 or 2 (default 2)")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this bug planted")
    parser.add_argument("--states", action="store_true", help="print in how many runs each rare state was seen")
    parser.add_argument("--rules", action="store_true", help="plant each bug of the scenarios: how many seeds see it?")
    parser.add_argument("--trace", metavar="FILE", help="with --seed: write every event there, a line each")
    parser.add_argument("--digest", action="store_true", help="with --seed: print only the trace hash")
    parser.add_argument("--verbose", action="store_true", help="show the product's log lines")
    args = parser.parse_args()
    if not args.verbose:
        logging.disable(logging.CRITICAL)
    names = args.scenario or SCENARIOS
    if args.seed is not None:
        return show(names[0], args)
    if args.rules:
        for line in tables.rules(list(names), args.processes):
            print(line, flush=True)
        return 0
    bad = 0
    for name in names:
        summary = run_seeds(
            name,
            range(args.first, args.first + args.seeds),
            plant=args.plant,
            processes=args.processes,
            progress=report_failure,
        )
        for line in tables.states(summary) if args.states else [str(summary)]:
            print(line, flush=True)
        for result in summary.failed[:20]:
            print(f"  seed {result.seed}: see it by: python -m tests.simulation --scenario {name} --seed {result.seed}")
        bad += len(summary.failed)
    return 1 if bad else 0


def report_failure(result: Result) -> None:
    if result.error is not None:
        last = result.error.strip().splitlines()[-1]
        print(f"seed {result.seed} FAILED: {last}", flush=True)


def show(name: str, args: argparse.Namespace) -> int:
    if args.verbose:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    with planted(args.plant), contextlib.ExitStack() as stack:
        sink = stack.enter_context(open(args.trace, "w")) if args.trace else None
        result = run(args.seed, load(name), sink=sink)
    if args.digest:
        print(result.digest)
    else:
        if result.error is not None:
            print(result.tail)
            print(result.error)
        for note in result.notes:
            print(note)
        print(f"{name} seed {result.seed}: {'FAILED' if result.error else 'ok'}, hash {result.digest}")
        print(f"{result.simulated_s:.3f} simulated s in {result.wall_s:.3f} s, {result.turns} loop turns")
        print(dict(sorted(result.counters.items())))
    return 1 if result.error else 0


if __name__ == "__main__":
    sys.exit(main())
