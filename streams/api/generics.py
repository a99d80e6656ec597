"""Type variables of topics, streams and tables. Without arguments these classes are of any types (PEP 696)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    KeyT = TypeVar("KeyT", default=Any)
    ValueT = TypeVar("ValueT", default=Any)
else:
    from typing import TypeVar

    KeyT = TypeVar("KeyT")
    ValueT = TypeVar("ValueT")
