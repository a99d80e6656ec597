"""Snapshots of the cluster's state (KIP-630): the records of a whole image, in one file beside the metadata log.

`<end offset>-<epoch>.checkpoint` replaces the log before its end offset, so that the log may begin there. It is written
from an image alone, and named by the last record in it. So every member of a quorum can write its own and send it to a
member that is behind. Kafka can read it, and this broker can read Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...protocol import records as batches
from ...protocol.messages import control_records
from ...protocol.messages import metadata_records as r
from ..storage.disk.files import Files
from .features import LATEST, METADATA_VERSION, encoded_at
from .image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage, endpoint_rows, feature_rows
from .partition_image import MIGRATING, PartitionImage

BATCH_RECORDS = 500
CHECKPOINT = ".checkpoint"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def snapshot_name(end: int, epoch: int) -> str:
    return f"{end:020d}-{epoch:010d}{CHECKPOINT}"


def snapshots(files: Files, directory: str) -> list[str]:
    """The names of the snapshots in a directory, oldest first. Raises OSError."""
    return [name for name in files.listdir(directory) if _NAME.fullmatch(name)]


def remove_older(files: Files, directory: str) -> None:
    """Remove all snapshots but the newest. Raises OSError."""
    for name in snapshots(files, directory)[:-1]:
        files.unlink(f"{directory}/{name}")


def offset_and_epoch(name: str) -> tuple[int, int]:
    """The offset at which the log continues after a snapshot, and the epoch of the last record in it."""
    end, epoch = name.removesuffix(CHECKPOINT).split("-")
    return int(end), int(epoch)


def image_records(image: MetadataImage) -> Iterator[Any]:
    """The records from which this image can be built."""
    for name, level in image.features.items():
        yield r.FeatureLevelRecord(name=name, feature_level=level)
    for controller in image.controllers.values():
        yield r.RegisterControllerRecord(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            end_points=endpoint_rows(controller.endpoints),
            features=feature_rows(controller.features),
        )
    for broker in image.brokers.values():
        cordoned = broker.cordoned_log_dirs
        yield r.RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=endpoint_rows(broker.endpoints),
            features=feature_rows(broker.features),
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.log_dirs),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )
    for topic in image.topics.values():
        yield r.TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield _partition(topic.id, index, partition)
        yield from _options(TOPIC_RESOURCE, topic.name, topic.configs.items())
    for name, options in image.broker_configs.items():
        yield from _options(BROKER_RESOURCE, name, options.items())
    for name, options in image.group_configs.items():
        yield from _options(GROUP_RESOURCE, name, options.items())
    if image.next_producer_id:
        yield r.ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    for link in image.links.values():
        yield r.MirrorLinkRecord(
            link_id=link.link_id, source_cluster_id=link.source_cluster_id, link_epoch=link.link_epoch
        )


def _partition(topic_id: bytes, index: int, partition: PartitionImage) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) or [MIGRATING] * len(partition.replicas),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _options(kind: int, resource: str, options: Iterable[tuple[str, str]]) -> Iterator[r.ConfigRecord]:
    for name, value in options:
        yield r.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def framed(values: Sequence[bytes], epoch: int, wall_ms: int, controls: Sequence[Any] = ()) -> bytes:
    """The contents of a snapshot file: encoded records between a header and a footer, which are control batches.

    controls: control records that follow the header in its batch, such as the voters.
    """

    def control(offset: int, *records: Any) -> bytes:
        rows = [(wall_ms, *control_records.encode(record), ()) for record in records]
        return batches.build_batch(rows, control=True, base_offset=offset, partition_leader_epoch=epoch)

    header = control_records.SnapshotHeaderRecord(last_contained_log_timestamp=wall_ms)
    parts = [control(0, header, *controls)]
    first = 1 + len(controls)
    for start in range(0, len(values), BATCH_RECORDS):
        rows = [(wall_ms, None, value, ()) for value in values[start : start + BATCH_RECORDS]]
        parts.append(batches.build_batch(rows, base_offset=first + start, partition_leader_epoch=epoch))
    parts.append(control(first + len(values), control_records.SnapshotFooterRecord()))
    return b"".join(parts)


def encoded(image: MetadataImage, wall_ms: int, controls: Sequence[Any] = ()) -> bytes:
    """The snapshot of an image, which must not change meanwhile."""
    level = image.features.get(METADATA_VERSION, LATEST)
    return framed([encoded_at(record, level) for record in image_records(image)], image.epoch, wall_ms, controls)
