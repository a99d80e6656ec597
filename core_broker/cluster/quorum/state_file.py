"""`quorum-state`: the epoch, leader and vote of a node, in Kafka's format. It is on disk before anyone is told of them.

Version 1 has the directory of the replica that got the vote (KIP-853); version 0, which Kafka wrote before, is read.
"""

from __future__ import annotations

import json

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.primitives import uuid_from_str, uuid_to_str
from ...storage.disk.files import Files
from ..raft.messages import NO_NODE, Persist
from ..raft.voters import NO_DIRECTORY, ReplicaKey

QUORUM_STATE = "quorum-state"


def encode(state: Persist) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": uuid_to_str(voted.directory_id),
        "data_version": 1,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes, path: str) -> Persist:
    """Raises KafkaError that names the path."""
    try:
        fields = json.loads(data)
        if fields["data_version"] not in (0, 1):
            raise ValueError(f"data_version {fields['data_version']}")
        voted = int(fields["votedId"])
        directory = uuid_from_str(fields["votedDirectoryId"]) if fields["data_version"] else NO_DIRECTORY
        key = ReplicaKey(voted, directory) if voted >= 0 else None
        return Persist(int(fields["leaderEpoch"]), int(fields["leaderId"]), key)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{path}: cannot be read: {error!r}: restore it from a backup; without it a voter might vote twice"
        raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, reason) from None


def read(files: Files, path: str) -> Persist | None:
    """The state in the file; None if there is none. Raises KafkaError, OSError."""
    return decode(files.read(path), path) if files.exists(path) else None
