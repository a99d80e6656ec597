"""Which names a topic may have, by Kafka's rules, which are the same for brokers and their clients."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249  # so that "<name>-<partition>" is a file name everywhere

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_invalid(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"
