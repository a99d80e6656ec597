"""Random ids, as `faust.uuid()`."""

from __future__ import annotations

from uuid import UUID

from ...runtime import system


def uuid() -> str:
    """A random UUID, as text."""
    return str(UUID(bytes=system().uuid()))
