"""What tests make in Docker: each thing carries its owner's name as a label, by which it is found and removed."""

from __future__ import annotations

import contextlib

from ..deploy.engine import EngineError, docker
from .owner import Owner

LABEL = "org.isthmus.testing.owner"
PASSES = 3  # what is being removed by another hand is there for a moment longer
# How to list and to remove each kind, in the order in which they need each other.
KINDS = (
    (("ps", "--all", "--no-trunc"), ("rm", "--force", "--volumes")),
    (("network", "ls", "--no-trunc"), ("network", "rm")),
    (("volume", "ls"), ("volume", "rm", "--force")),
)


def found(owner: str | None = None) -> list[str]:
    """Ids of what one owner, or any, has in Docker now."""
    return [each for listing, _ in KINDS for each in _listed(listing, owner)]


def remove(owner: str) -> None:
    """Remove all that is this owner's. Raises EngineError when something stays."""
    for listing, removal in KINDS:
        for last in range(PASSES):
            ids = _listed(listing, owner)
            if not ids:
                break
            try:
                docker(*removal, *ids)
            except EngineError:
                if last == PASSES - 1 and _listed(listing, owner):
                    raise


def owners() -> list[str]:
    """All owners that have something in Docker, sorted."""
    names: dict[str, None] = {}
    for listing, _ in KINDS:
        said = docker(*listing, "--filter", f"label={LABEL}", "--format", f'{{{{.Label "{LABEL}"}}}}')
        names |= dict.fromkeys(said.split())
    return sorted(names)


def remove_left() -> list[str]:
    """Remove what owners that are gone have left behind; their names."""
    gone = [name for name in owners() if (owner := Owner.parse(name)) and owner.gone]
    for name in gone:
        with contextlib.suppress(EngineError):  # another run may be doing the same
            remove(name)
    return gone


def _listed(listing: tuple[str, ...], owner: str | None) -> list[str]:
    label = f"{LABEL}={owner}" if owner else LABEL
    return docker(*listing, "--quiet", "--filter", f"label={label}").split()
