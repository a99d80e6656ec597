"""What may have been meant by a name that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def or_near(name: str, known: Iterable[str], after: str = "") -> str:
    """ ": is it NAME?", for the known name that is nearest, or nothing. after: what names end with in the message."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f": is it {found[0]}{after}?" if found else ""
