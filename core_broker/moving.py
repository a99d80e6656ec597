"""`isthmus broker to-kafka DIR`: converts the data directory of a stopped broker so that Apache Kafka can start on it.

Logs, groups and checkpoints have Kafka's formats already. The metadata log does not: it has no metadata.version, and
may have mirror links and options that Kafka does not know. So a snapshot (KIP-630) with only Kafka's record types is
written beside it; both brokers can start from that. Only then the log before it is removed. An interruption leaves a
directory that one of the two can use.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator
from typing import Any

from .. import runtime
from ..protocol.errors import KafkaError
from ..protocol.messages import metadata_records as r
from ..protocol.primitives import uuid_from_str
from ..protocol.records import CorruptBatch
from ..runtime import Runtime
from .cluster.features import GROUP_VERSION, TRANSACTION_VERSION
from .cluster.features import METADATA_VERSION as METADATA_FEATURE
from .cluster.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, InconsistentRecord, MetadataImage
from .cluster.metadata_log import DIRECTORY, MetadataLog
from .cluster.metadata_snapshot import framed, snapshot_name
from .cluster.partition_image import NO_LEADER
from .config import BROKER_OPTIONS, TOPIC_OPTIONS
from .storage.disk.files import DirectoryLocked, Files
from .storage.disk.real_files import RealFiles
from .storage.disk.small_files import (
    CLEAN_SHUTDOWN,
    FORMAT,
    LOCK_FILE,
    META_PROPERTIES,
    CheckpointError,
    parse_meta_properties,
    render_properties,
)
from .storage.log.epochs import EPOCH_CHECKPOINT, LeaderEpochs
from .storage.log.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, file_name, offset_of

METADATA_VERSION = 25  # the last of Kafka 4.0: any Kafka 4 can start from it, and kafka-features.sh can raise it
# What Kafka 4.0 has, too, and does not serve all groups and producers without.
CARRIED = (GROUP_VERSION, TRANSACTION_VERSION)
EXIT_DONE, EXIT_FAILED = 0, 1
PARTITION_VERSION = 1  # the first with directories


class CannotMove(Exception):
    """The directory cannot be converted. The message is one line that names the cause and the solution."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="isthmus broker to-kafka",
        description="Convert the data directory of a stopped broker so that Apache Kafka 4 can start on it. "
        "Work on a copy: only Kafka can use it afterwards. From Kafka to Isthmus no step is needed: start a broker.",
    )
    parser.add_argument("directory", metavar="DIR", help="the data directory, as in isthmus broker --data")
    given = parser.parse_args(arguments)
    logging.getLogger("isthmus").addHandler(logging.NullHandler())
    files = RealFiles(1)
    try:
        for line in asyncio.run(hand_over(files, given.directory.rstrip("/") or "/", runtime.system())):
            print(line)
    except (CannotMove, KafkaError, InconsistentRecord, CorruptBatch) as error:
        print(f"isthmus broker to-kafka: {getattr(error, 'message', error)}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"isthmus broker to-kafka: {error.filename or given.directory}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        files.close()
    return EXIT_DONE


async def hand_over(files: Files, data_dir: str, clocks: Runtime) -> list[str]:
    """Convert. Returns lines to print. Raises CannotMove, KafkaError, InconsistentRecord, CorruptBatch, OSError."""
    path = f"{data_dir}/{META_PROPERTIES}"
    try:
        if not files.exists(path):
            raise CannotMove(f"{data_dir} is not a data directory: it has no {META_PROPERTIES}")
        lock = files.lock(f"{data_dir}/{LOCK_FILE}")
    except DirectoryLocked as error:
        raise CannotMove(f"{error}; stop the broker first") from None
    try:
        identity = parse_meta_properties(files.read(path), path)
        if FORMAT not in identity:
            raise CannotMove(f"{data_dir} is already Kafka's: {META_PROPERTIES} has no {FORMAT}")
        if not files.exists(f"{data_dir}/{CLEAN_SHUTDOWN}"):
            raise CannotMove(f"{data_dir} was not shut down cleanly: start a broker on it, and stop it")
        image = MetadataImage(identity["cluster.id"])
        log = await MetadataLog.open(files, data_dir, clocks)
        if log.is_new:
            await log.close()
            raise CannotMove(f"{data_dir}/{DIRECTORY} has no records: the topics are unknown")
        try:
            await log.replay(image)
        finally:
            await log.close()
        left_out: list[str] = []
        records = list(_records(files, data_dir, image, identity, left_out))
        _replace(files, f"{data_dir}/{DIRECTORY}", records, log.end_offset, log.last_epoch, clocks.wall_ms())
        files.write_atomic(path, render_properties({k: v for k, v in identity.items() if k != FORMAT}))
    except CheckpointError as error:
        raise CannotMove(str(error)) from None
    finally:
        lock.release()
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    return [
        *(f"left out, because Kafka does not know it: {each}" for each in left_out),
        f"{data_dir}: {len(image.topics)} topics, {partitions} partitions; start Kafka 4 on it with "
        f"node.id={identity['node.id']} and process.roles=broker,controller",
    ]


def _records(
    files: Files, data_dir: str, image: MetadataImage, identity: dict[str, str], left_out: list[str]
) -> Iterator[Any]:
    """The image in Kafka's records. No partition has a leader: Kafka's controller elects, under new leader epochs."""
    node_id, directory = int(identity["node.id"]), uuid_from_str(identity["directory.id"])
    yield r.FeatureLevelRecord(name=METADATA_FEATURE, feature_level=METADATA_VERSION)
    for feature in CARRIED:
        if level := image.features.get(feature):
            yield r.FeatureLevelRecord(name=feature, feature_level=level)
    for name, topic in image.topics.items():
        yield r.TopicRecord(name=name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            # Mirrored batches have the epochs of their source.
            epoch = max(partition.leader_epoch, _latest_epoch(files, f"{data_dir}/{name}-{index}"))
            yield r.PartitionRecord(
                partition_id=index,
                topic_id=topic.id,
                replicas=[node_id],
                isr=[node_id],
                leader=NO_LEADER,
                leader_epoch=epoch,
                partition_epoch=partition.partition_epoch,
                directories=[directory],
            )
        own = {option.name for option in TOPIC_OPTIONS if option.own}
        for option, value in topic.configs.items():
            if option in own:
                left_out.append(f"{option}={value} of topic {name}")
            else:
                yield r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=value)
    own = {option.name for option in BROKER_OPTIONS if option.own}
    for name, options in image.broker_configs.items():
        for option, value in options.items():
            if option in own:
                left_out.append(f"{option}={value} of {f'broker {name}' if name else 'all brokers'}")
            else:
                yield r.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=option, value=value)
    for name, options in image.group_configs.items():
        for option, value in options.items():
            yield r.ConfigRecord(resource_type=GROUP_RESOURCE, resource_name=name, name=option, value=value)
    left_out += [f"the mirror link {link}" for link in image.links]
    if image.next_producer_id:
        yield r.ProducerIdsRecord(broker_id=node_id, next_producer_id=image.next_producer_id)


def _latest_epoch(files: Files, directory: str) -> int:
    path = f"{directory}/{EPOCH_CHECKPOINT}"
    return LeaderEpochs.decode(files.read(path), path).latest if files.exists(path) else -1


def _replace(files: Files, directory: str, records: list[Any], end: int, epoch: int, wall_ms: int) -> None:
    """Replace the log before offset `end` by a snapshot."""
    name = snapshot_name(end, epoch)
    files.write_atomic(f"{directory}/{name}", framed([_encode(record) for record in records], epoch, wall_ms))
    files.open(f"{directory}/{file_name(end, LOG_SUFFIX)}").close()
    files.sync_directory(directory)
    for name in files.listdir(directory):  # ascending: an interruption leaves no gap
        offset = offset_of(name)
        is_before = offset is not None and offset < end and name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX))
        if is_before or name == EPOCH_CHECKPOINT:
            files.unlink(f"{directory}/{name}")
            files.sync_directory(directory)


def _encode(record: Any) -> bytes:
    return r.encode(record, PARTITION_VERSION if isinstance(record, r.PartitionRecord) else None)
