"""Applies the contents of `__cluster_metadata-0` to an image, in order: our records and those of Kafka's controller.

Kafka bundles records into transactions (KIP-868); we do not. Both write the whole state to a snapshot now and then, and
drop the segments before it: see metadata_snapshot.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol import records as batches
from ...protocol.errors import DecodeError
from ...protocol.messages import metadata_records as r
from ..storage.disk.files import Files
from .image import Delta, InconsistentRecord, MetadataImage
from .metadata_snapshot import offset_and_epoch, snapshots

log = logging.getLogger(__name__)

# Record types of Kafka that this broker does not need.
_LEFT_OUT = {
    14: "client quotas",
    21: "the state of a migration from ZooKeeper",
    22: "the removal of a SCRAM credential",
    26: "the removal of a delegation token",
}
# Record types that must not be ignored: what they forbid would be allowed.
_REFUSED = {10: "a delegation token", 11: "a SCRAM credential", 18: "an ACL", 19: "the removal of an ACL"}


class Fold:
    """Applies batches to an image; the records of a transaction all at its end, or none of them.

    timestamp_ms: of the last record that was applied, -1 before the first.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.removed: dict[bytes, None] | None = {}  # ids of topics that were deleted; None if nobody asks any more
        self.timestamp_ms = -1
        self._held: list[Any] | None = None  # records of an open transaction
        self._reported: dict[int, None] = {}  # ignored types that were logged

    def apply(self, found: Sequence[batches.Record], epoch: int, offset: int | None = None) -> Delta:
        """Apply a batch's records. offset: the image's offset afterwards, by default that of the last record. Returns
        what has changed.

        Raises InconsistentRecord.
        """
        ready: list[Any] = []
        for each in found:
            record = self._decode(each)
            match record:
                case None:
                    pass
                case r.BeginTransactionRecord():
                    self._held = []
                case r.EndTransactionRecord():
                    ready += self._held or ()
                    self._held = None
                case r.AbortTransactionRecord():
                    self._held = None
                case _:
                    (ready if self._held is None else self._held).append(record)
        return self.take(ready, found[-1].offset if offset is None else offset, epoch, found[-1].timestamp_ms)

    def take(self, records: Sequence[Any], offset: int, epoch: int, timestamp_ms: int) -> Delta:
        """Apply records that were decided here; the last of them is at `offset`. Returns what has changed."""
        self.timestamp_ms = timestamp_ms
        if self.removed is not None:
            self.removed.update((record.topic_id, None) for record in records if type(record) is r.RemoveTopicRecord)
        return self.image.apply(records, offset, epoch)

    def _decode(self, record: batches.Record) -> Any:
        try:
            return r.decode(record.value)
        except r.UnknownRecord as error:
            what = _LEFT_OUT.get(error.number)
            if what is None:
                raise InconsistentRecord(f"metadata record at offset {record.offset}: {_why(error)}") from error
            if error.number not in self._reported:
                self._reported[error.number] = None
                log.warning("the metadata has %s, which this broker ignores", what)
            return None
        except (DecodeError, TypeError) as error:
            raise InconsistentRecord(f"metadata record at offset {record.offset}: {error}") from error


def _why(error: r.UnknownRecord) -> str:
    what = _REFUSED.get(error.number)
    if what is None:
        return str(error)
    return f"{what}, which this broker cannot enforce: remove it in Kafka, and wait for Kafka's next snapshot"


def replace_image(image: MetadataImage, other: MetadataImage) -> Delta:
    """Make an image what another one is, which is later. Returns what has changed, as if records had changed it."""
    delta = Delta()
    for name, topic in image.topics.items():
        new = other.topics.get(name)
        if new is None or new.id != topic.id:
            delta.deleted[name] = topic
    for name, topic in other.topics.items():
        old = image.topics.get(name)
        if old is None or old.id != topic.id:
            delta.created[name] = topic
            delta.changed[name] = dict.fromkeys(topic.partitions)
            continue
        changed = {index: None for index, each in topic.partitions.items() if old.partitions.get(index) != each}
        if changed:
            delta.changed[name] = changed
        if old.configs != topic.configs:
            delta.reconfigured[name] = None
    delta.brokers = _differing(image.brokers, other.brokers)
    delta.broker_options = _differing(image.broker_configs, other.broker_configs)
    delta.group_options = _differing(image.group_configs, other.group_configs)
    delta.links = _differing(image.links, other.links)
    image.__dict__.update(other.__dict__)
    return delta


def _differing(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, None]:
    """The keys that only one has, or that have other values."""
    return {key: None for key in [*old, *new] if key not in old or key not in new or old[key] != new[key]}


def fold_snapshot(files: Files, directory: str, fold: Fold) -> int:
    """Apply the newest snapshot of a metadata log. Returns the offset at which the log continues, 0 without snapshot.

    Raises InconsistentRecord, CorruptBatch, OSError.
    """
    names = snapshots(files, directory)
    if not names:
        return 0
    end, epoch = offset_and_epoch(names[-1])
    if end == 0:
        return 0  # the bootstrap snapshot: the first leader has copied it into the log
    data = files.read(f"{directory}/{names[-1]}")
    for position, header in batches.walk(data):
        if not header.is_control:
            fold.apply(batches.decode_batch(data, position), epoch, end - 1)
    return end
