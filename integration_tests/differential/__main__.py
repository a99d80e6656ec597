"""`python -m integration_tests.differential`: how many scenarios there are, every error code and where it is given,
the pitfalls, and the differences that are explained. A scenario is a precondition and what is asked; versions of a
request do not count.
"""

from __future__ import annotations

from collections import Counter

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import APIS

from .absent_codes import ABSENT, NOWHERE
from .catalogue import ALL
from .differences import DIFFERENCES
from .error_codes import GIVEN
from .group_mutants import GROUP_MUTANTS
from .mutants import MUTANTS
from .pitfalls import PITFALLS
from .transaction_mutants import TRANSACTION_MUTANTS
from .versions import STOCK


def main() -> None:
    by_api = Counter(scenario.key for scenario in ALL)
    cases = sum(len(scenario.versions) for scenario in ALL)
    print(
        f"{len(ALL)} scenarios of {len(STOCK)} APIs, {cases} with their versions; {len(MUTANTS)} mutants of handlers,"
    )
    print(f"{len(GROUP_MUTANTS)} of groups and {len(TRANSACTION_MUTANTS)} of transactions and consumer groups")
    for key, codes in sorted(GIVEN.items()):
        print(f"\n{APIS[key].name} ({key}): {by_api[key]} scenarios")
        for code, scenario in sorted(codes.items()):
            print(f"  {_named(code)} {scenario}")
        for code, reason in sorted(ABSENT.get(key, {}).items()):
            print(f"  {_named(code)} not on one node: {reason}")
    for key in sorted(STOCK.keys() - GIVEN.keys()):
        print(f"\n{APIS[key].name} ({key}): {by_api[key]} scenarios, no error codes")
    print("\nCodes of no API that is served:")
    for reason, rest in NOWHERE.items():
        print(f"  {reason}: {', '.join(code.name for code in rest)}")
    print("\nPitfalls:")
    for pitfall in PITFALLS:
        where = "; ".join(filter(None, (", ".join(pitfall.scenarios), pitfall.elsewhere)))
        print(f"  {pitfall.number:2} {pitfall.what}: {where}")
    print(f"\n{len(DIFFERENCES)} differences that are explained:")
    for difference in DIFFERENCES:
        where = f" in {difference.scenario}" if difference.scenario else ""
        print(f"  {difference.path}{where}: {difference.reason}")


def _named(code: ErrorCode) -> str:
    return f"{code.value:3} {code.name:34}"


if __name__ == "__main__":
    main()
