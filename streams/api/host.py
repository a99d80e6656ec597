"""What runs an app's tasks in this process, as the app's own code sees it: a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..engine.stores.global_store import GlobalStore
from .union import HasRows


class Host(Protocol):
    """`App.worker`."""

    def stores(self, table: str) -> Sequence[HasRows]:
        """The rows of a table of all tasks that run here, in the order of their partitions."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether it has partition 0 of the first topic, by name, that the app reads."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions are being given, or tasks restored."""
        ...


class Hosted(Protocol):
    """An app, as its tables see it."""

    @property
    def worker(self) -> Host | None: ...

    @property
    def tables(self) -> dict[str, Any]:
        """What it has declared, by name."""
        ...

    @property
    def declared(self) -> dict[str, Any]:
        """The topics that pipelines read and write, by name."""
        ...

    @property
    def global_stores(self) -> Mapping[str, GlobalStore]:
        """The rows of global tables, by name, while a worker or driver runs."""
        ...

    def changelog_topic(self, table: str) -> str: ...
