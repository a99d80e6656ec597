"""Brokers of an older release beside those of this one: they know lower levels of metadata.version only.

There is one release so far. An older one is this code with less in what it names as supported; so what is tried is that
levels are finalized when all members know them and not before, and that records and requests suit the level. Software
that differs otherwise is not modelled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from unittest import mock

from isthmus.core_broker import broker
from isthmus.core_broker.cluster.controller import update_features, watch
from isthmus.core_broker.cluster.features import LATEST, METADATA_VERSION, OLDEST
from isthmus.core_broker.server.apis import api_versions

from .hosts import PROCESS

OLDER = (26, 29, 32)  # 26 is the first whose new clusters have eligible leader replicas, on which the checks rely


class Releases:
    """level: by machine, the highest metadata.version that its software knows; LATEST if it is not in there."""

    def __init__(self) -> None:
        self.level: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self.level.get(name, LATEST)

    def here(self) -> int:
        """Of the machine that code runs for."""
        process = PROCESS.get()
        return LATEST if process is None else self.of(process.machine.name)


class Levels(Mapping[str, tuple[int, int]]):
    """The levels that the software of a machine names: those of this release, cut off."""

    def __init__(self, releases: Releases, known: Mapping[str, tuple[int, int]]) -> None:
        self._releases = releases
        self._known = known

    def __getitem__(self, name: str) -> tuple[int, int]:
        return (OLDEST, self._releases.here()) if name == METADATA_VERSION else self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@contextlib.contextmanager
def installed(releases: Releases) -> Iterator[None]:
    """Meanwhile machines run the releases that they are said to have."""
    supported = Levels(releases, update_features.SUPPORTED)
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (broker, "REGISTERED", Levels(releases, broker.REGISTERED)),
            (update_features, "SUPPORTED", supported),
            (api_versions, "SUPPORTED", supported),
            (api_versions, "_supported", api_versions._supported.__wrapped__),  # not encoded once for all machines
            (watch, "Activate", lambda: update_features.Activate(releases.here())),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield
