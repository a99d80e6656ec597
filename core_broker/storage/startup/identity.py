"""The identity of a data directory: `meta.properties`, in Kafka's format. It belongs to one node of one cluster."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.primitives import uuid_to_str
from ....runtime import Runtime
from ..disk.files import Files
from ..disk.small_files import (
    FORMAT,
    FORMAT_VERSION,
    META_PROPERTIES,
    META_VERSION,
    CheckpointError,
    parse_meta_properties,
    partition_of,
    render_properties,
)


def identify(
    files: Files, path: str, node_id: int, cluster_id: str | None, runtime: Runtime, new_directory_id: str | None = None
) -> tuple[str, str]:
    """The ids of the cluster and of the directory. They are created and written to `path` if they do not exist.

    cluster_id: the expected id; None accepts the one in the file, or creates one. new_directory_id: what a directory
    without an id gets; None: a random one. Raises KafkaError if the directory
    belongs to another node or another cluster, OSError.
    """
    try:
        found = parse_meta_properties(files.read(path), path) if files.exists(path) else {}
    except CheckpointError as error:
        raise _inconsistent(str(error)) from None
    if found:
        if found["node.id"] != str(node_id):
            raise _inconsistent(
                f"{path}: the directory belongs to node {found['node.id']}, this is node {node_id}: "
                f"set node.id={found['node.id']}, or choose another directory"
            )
        if cluster_id is not None and found["cluster.id"] != cluster_id:
            raise _inconsistent(
                f"{path}: the directory belongs to cluster {found['cluster.id']}, this is cluster {cluster_id}: "
                f"set cluster.id={found['cluster.id']}, or choose another directory"
            )
    else:
        _refuse_nameless(files, path)
    values = {
        "cluster.id": found.get("cluster.id") or cluster_id or _new_id(runtime),
        "directory.id": found.get("directory.id") or new_directory_id or _new_id(runtime),
        "node.id": str(node_id),
        "version": META_VERSION,
        FORMAT: FORMAT_VERSION,
    }
    if found != values:
        files.write_atomic(path, render_properties({**found, **values}))
    return values["cluster.id"], values["directory.id"]


def _refuse_nameless(files: Files, path: str) -> None:
    """Refuse partitions without this file. It is written before everything else, so their cluster is unknown."""
    directory = path.rpartition("/")[0]
    found = [name for name in files.listdir(directory) if partition_of(name) is not None]
    if found:
        raise _inconsistent(
            f"{directory} has no {META_PROPERTIES}, though it has {found[0]} and {len(found) - 1} more partition "
            "directories: restore it from a backup, with its cluster.id and node.id, or choose an empty directory"
        )


def _new_id(runtime: Runtime) -> str:
    """A random id that, as in Kafka, does not begin with a dash: a command line would take it for an option."""
    while (text := uuid_to_str(runtime.uuid())).startswith("-"):
        pass
    return text


def _inconsistent(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.INVALID_CONFIG, message)
