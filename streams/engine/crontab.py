"""Crontabs as Faust takes them (croniter's), in the words of Debian's cron, which cronsim reads.

Croniter has the second last, names for common ones, `?`, ranges that go over the end, and the last Friday as `L5`; and
where both days are restricted, one of them is enough, also when the restriction begins with a star. Pure.
"""

from __future__ import annotations

NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAYS = "sun mon tue wed thu fri sat".split()
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
# The first and last value of each field, and names of values: minute, hour, day of month, month, day of week, second.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
    (0, 59, {}),
)


def in_debian_s(expression: str) -> str:
    """The same crontab, with the second first if it has one. What is not understood is left as it is. Raises ValueError
    for another number of fields than five or six."""
    fields = NAMES.get(expression.strip().lower(), expression).lower().split()
    if len(fields) not in (5, 6):
        raise ValueError(
            "must have five fields: minute, hour, day of month, month, day of week; or six, the last one seconds"
        )
    minute, hour, day, month, weekday, *second = [
        ",".join(_term(term, *of) for term in field.split(",")) for field, of in zip(fields, _FIELDS, strict=False)
    ]
    return " ".join((*second, minute, hour, day, month, weekday))


def _term(term: str, first: int, last: int, names: dict[str, int]) -> str:
    if term == "?":
        return "*"
    if term.startswith("*/"):
        return f"{first}-{last}{term[1:]}" if first == 1 or last == 6 else term
    if names and term[0] == "l" and term[1:].isdigit():
        return f"{term[1:]}l"
    begin, dash, end = term.partition("-")
    if not dash:
        return term
    numbers = [names.get(each, int(each) if each.isdigit() else -1) for each in (begin, end)]
    if -1 in numbers or numbers[0] <= numbers[1]:
        return term
    return f"{numbers[0]}-{last},{first}-{numbers[1]}"
