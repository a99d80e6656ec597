"""The names of the topics that an app has for itself, and what they tell of a topic."""

from __future__ import annotations

import re

from ..errors import AppError

CHANGELOG, REPARTITION, BRIDGE, DEAD_LETTERS = "changelog", "repartition", "copartitioned", "dead-letters"
RESTORING = "restoring"
BETWEEN = (REPARTITION, BRIDGE)  # between two steps
_NAMED = (CHANGELOG, REPARTITION, BRIDGE)  # after a table, or what they carry

_PART = re.compile(r"[a-zA-Z0-9._-]{1,200}")  # topics' names have up to 249 letters
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check(what: str, name: str) -> None:
    """Raises AppError for a name that cannot be part of a topic's. what: it is the name of."""
    if not _PART.fullmatch(name):
        raise AppError(
            f"{what} {name!r} cannot be part of a topic's name: it may have up to 200 letters, digits, '.', '_' and '-'"
        )


def check_topic(name: object) -> None:
    """Raises AppError for a name that no topic can have."""
    if not isinstance(name, str) or name in (".", "..") or not _TOPIC.fullmatch(name):
        raise AppError(f"no topic can be called {name!r}: it may have up to 249 letters, digits, '.', '_' and '-'")


def changelog(app_id: str, table: str) -> str:
    return f"{app_id}-{table}-{CHANGELOG}"


def repartition(app_id: str, *of: str) -> str:
    """of: the step, or agent, topic and key."""
    return "-".join((app_id, *of, REPARTITION))


def bridge(app_id: str, topic: str) -> str:
    return f"{app_id}-{topic}-{BRIDGE}"


def dead_letters(app_id: str) -> str:
    return f"{app_id}-{DEAD_LETTERS}"


def fence(app_id: str) -> str:
    """There while the app's state is being restored."""
    return f"{app_id}-{RESTORING}"


def replies(app_id: str) -> str:
    return f"{app_id}-replies"


def kind_of(app_id: str, topic: str) -> str | None:
    """What a topic is to an app, by its name; None: it is not one of its own."""
    if topic in (dead_letters(app_id), fence(app_id)):
        return DEAD_LETTERS if topic == dead_letters(app_id) else RESTORING
    if not topic.startswith(f"{app_id}-"):
        return None
    rest = topic[len(app_id) + 1 :]
    return next((kind for kind in _NAMED if rest.endswith(f"-{kind}") and len(rest) > len(kind) + 1), None)


def table_of(app_id: str, changelog: str) -> str:
    return changelog[len(app_id) + 1 : -len(CHANGELOG) - 1]


def bridged(app_id: str, topic: str) -> str | None:
    """The topic whose records a bridge has; None: it is no bridge."""
    return topic[len(app_id) + 1 : -len(BRIDGE) - 1] if kind_of(app_id, topic) == BRIDGE else None
