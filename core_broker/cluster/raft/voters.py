"""The voters of the metadata quorum, and how the log changed them (KIP-853).

A voter is a node id with the id of its directory, so that a node that comes back with an empty disk is another voter.
The voters in force are those of the last record in the log, committed or not. Where the voters are configured instead
(`controller.quorum.voters`, kraft.version 0), their directories are unknown and nothing changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

NO_DIRECTORY = bytes(16)
KRAFT_VERSIONS = (0, 1)  # the lowest and the highest kraft.version that this software supports
BEFORE_LOG = -1  # the offset of voters that come from the configuration


@dataclass(slots=True, frozen=True, order=True)
class ReplicaKey:
    """A node's id and the 16 bytes of its directory's id; NO_DIRECTORY if that is not known."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """Whether the other one is this replica; any directory is, if this one's is not known."""
        return self.id == other.id and self.directory_id in (NO_DIRECTORY, other.directory_id)

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == NO_DIRECTORY else f"{self.id}-{self.directory_id.hex()[:4]}"


class Endpoint(NamedTuple):
    """Where a node serves the quorum's requests, by listener."""

    listener: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]
T = TypeVar("T")


def endpoints_of(found: Iterable[Any]) -> Endpoints:
    """Of a message or a record: all have name, host and port."""
    return tuple(Endpoint(each.name, each.host, each.port) for each in found)


def listed(endpoints: Endpoints, kind: Callable[..., T]) -> list[T]:
    """For a message or a record, whose endpoints are of this kind."""
    return [kind(name=name, host=host, port=port) for name, host, port in endpoints]


@dataclass(slots=True, frozen=True)
class Voter:
    """endpoints: empty if not known. kraft_versions: the lowest and the highest kraft.version that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


@dataclass(slots=True, frozen=True)
class VoterSet:
    """Voters with different ids, in the order of their ids."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls(tuple(sorted(voters, key=lambda voter: voter.key.id)))

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def ids(self) -> list[int]:
        return [voter.key.id for voter in self.voters]

    def get(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.key.id == node_id:
                return voter
        return None

    def has(self, key: ReplicaKey) -> bool:
        voter = self.get(key.id)
        return voter is not None and voter.key.matches(key)

    def has_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.has(key)

    def endpoints(self, node_id: int) -> Endpoints:
        voter = self.get(node_id)
        return () if voter is None else voter.endpoints

    def with_voter(self, voter: Voter) -> VoterSet:
        """With this voter, in the place of one with its id."""
        return VoterSet.of([*(each for each in self.voters if each.key.id != voter.key.id), voter])

    def without(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(tuple(each for each in self.voters if not each.key.matches(key)))

    def __str__(self) -> str:
        return ",".join(str(voter.key) for voter in self.voters)


@dataclass(slots=True, frozen=True)
class VoterChange:
    """A VotersRecord or a KRaftVersionRecord of the log, or of a snapshot's header. None: unchanged by it.

    offset: of the record; of a snapshot's header, the snapshot's end offset - 1.
    """

    offset: int
    voters: VoterSet | None = None
    kraft_version: int | None = None


@dataclass(slots=True)
class VoterHistory:
    """The voters by the offsets of the records that set them, the last of them in force."""

    configured: VoterSet = field(default_factory=VoterSet)
    _changes: tuple[VoterChange, ...] = ()

    @property
    def last(self) -> VoterSet:
        return self.at(None)

    @property
    def last_offset(self) -> int:
        """Of the record that set the last voters; BEFORE_LOG if there is none."""
        return next((each.offset for each in reversed(self._changes) if each.voters is not None), BEFORE_LOG)

    @property
    def kraft_version(self) -> int:
        return self.kraft_version_at(None)

    def at(self, offset: int | None) -> VoterSet:
        """The voters that records before `offset` set; None: all records."""
        for each in reversed(self._changes):
            if each.voters is not None and (offset is None or each.offset < offset):
                return each.voters
        return self.configured

    def kraft_version_at(self, offset: int | None) -> int:
        for each in reversed(self._changes):
            if each.kraft_version is not None and (offset is None or each.offset < offset):
                return each.kraft_version
        return 0

    def may_have(self, key: ReplicaKey, high_watermark: int | None) -> bool:
        """Whether a replica is a voter as long as it is unknown which of the records are committed: in the set that was
        in force at the high watermark, or in a later one. None: nothing is known to be committed."""
        if self.last.has(key):
            return True
        committed = 0 if high_watermark is None else high_watermark
        later = [each.voters for each in self._changes if each.voters is not None and each.offset >= committed]
        return bool(later) and any(voters.has(key) for voters in [self.at(committed), *later])

    def add(self, changes: Iterable[VoterChange]) -> None:
        self._changes = (*self._changes, *changes)

    def truncate_end(self, offset: int) -> None:
        """Records from `offset` on are gone from the log."""
        self._changes = tuple(each for each in self._changes if each.offset < offset)

    def truncate_start(self, offset: int) -> None:
        """A snapshot that ends at `offset` has the state before it: one change is enough for it."""
        voters, version = self.at(offset), self.kraft_version_at(offset)
        later = tuple(each for each in self._changes if each.offset >= offset)
        if len(later) < len(self._changes):
            self._changes = (VoterChange(offset - 1, voters, version), *later)

    def reset(self, changes: Iterable[VoterChange]) -> None:
        """The log was replaced by a snapshot, whose header has these."""
        self._changes = tuple(changes)
