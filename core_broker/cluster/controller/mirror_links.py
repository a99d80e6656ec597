"""Mirror links: which link owns a mirrored topic, and the epoch under which the link's workers may append.

A link is registered with its first topic, at epoch 0. A worker that takes over the link raises the epoch, which fences
the previous worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import MirrorLinkRecord
from ..features import OUR_VERSION
from ..image import Levels, MetadataImage
from .common import Decision, Item, View

LINK = "mirror.link"
SOURCE_CLUSTER = "mirror.source.cluster.id"
SOURCE_TOPIC = "mirror.source.topic.id"
NEXT_EPOCH = -1


@dataclass(slots=True)
class RegisteredLink(Item):
    link_id: str = ""
    source_cluster_id: str = ""
    link_epoch: int = -1


@dataclass(slots=True, frozen=True)
class RegisterMirrorLink:
    """Register a link or raise its epoch; NEXT_EPOCH means the present one plus one. Result: a RegisteredLink.

    A lower epoch than the present one is refused (FENCED_LEADER_EPOCH); the present one changes nothing.
    """

    link_id: str
    source_cluster_id: str
    link_epoch: int = NEXT_EPOCH

    def decide(self, view: View) -> Decision:
        if not self.link_id or not self.source_cluster_id:
            return Decision(self.fail(KafkaError(ErrorCode.INVALID_REQUEST, "a link needs an id and a source cluster")))
        known = view.image.links.get(self.link_id)
        if known is not None and known.source_cluster_id != self.source_cluster_id:
            return Decision(self.fail(_other_source(self.link_id, known.source_cluster_id, self.source_cluster_id)))
        present = -1 if known is None else known.link_epoch
        epoch = present + 1 if self.link_epoch == NEXT_EPOCH else self.link_epoch
        if epoch < present:
            reason = f"link {self.link_id} is at epoch {present}: another worker has taken over from epoch {epoch}"
            return Decision(self.fail(KafkaError(ErrorCode.FENCED_LEADER_EPOCH, reason)))
        result = RegisteredLink(
            link_id=self.link_id, source_cluster_id=self.source_cluster_id, link_epoch=epoch
        )  # fmt: skip
        if epoch == present:
            return Decision(result)
        _check_members(view.image)
        record = MirrorLinkRecord(
            link_id=self.link_id, source_cluster_id=self.source_cluster_id, link_epoch=epoch
        )  # fmt: skip
        return Decision(result, [record])

    def fail(self, error: KafkaError) -> RegisteredLink:
        return RegisteredLink(error.code, error.message, self.link_id, self.source_cluster_id)


def link_of_topic(
    configs: Mapping[str, str], image: MetadataImage, pending: Mapping[str, MirrorLinkRecord]
) -> MirrorLinkRecord | None:
    """The registration that a new topic with these options needs; None if it has no link, or the link is known.

    pending: links that earlier topics of the same command register. Raises KafkaError(INVALID_CONFIG).
    """
    link_id = configs.get(LINK, "")
    source = configs.get(SOURCE_CLUSTER, "")
    if not link_id:
        lost = [name for name in (SOURCE_CLUSTER, SOURCE_TOPIC) if configs.get(name)]
        if lost:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{lost[0]} is set, but {LINK}, which it needs, is not")
        return None
    if not source:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{LINK} is {link_id}, so {SOURCE_CLUSTER} must be set too")
    known = image.links.get(link_id) or pending.get(link_id)
    if known is None:
        _check_members(image)
        return MirrorLinkRecord(link_id=link_id, source_cluster_id=source, link_epoch=0)
    if known.source_cluster_id != source:
        raise _other_source(link_id, known.source_cluster_id, source)
    return None


def check_reads_links(image: MetadataImage, node_id: int, features: Mapping[str, Levels]) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) for a node of Kafka's own, where links are in the metadata.

    Such a broker would go on with metadata of which it read a part.
    """
    if image.links and _is_kafkas(features):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"node {node_id} is one of Apache Kafka, which cannot read the links of mirrors that this cluster is "
            f"the target of ({', '.join(image.links)}): carry its topics to a cluster of Kafka by a mirror instead",
        )


def _check_members(image: MetadataImage) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) if a node would fail by a record of ours: one of Kafka's own."""
    features = {each.id: each.features for each in image.controllers.values()}
    features |= {each.id: each.features for each in image.brokers.values()}  # ours tell theirs as brokers alone
    theirs = [str(node_id) for node_id, each in features.items() if _is_kafkas(each)]
    if theirs:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a cluster with nodes of Apache Kafka (here {', '.join(theirs)}) cannot be the target of a mirror, "
            "whose records Kafka cannot read: let them leave first, by `isthmus broker unregister ID`, or by `isthmus "
            "quorum remove ID` where it is a controller",
        )


def _is_kafkas(features: Mapping[str, Levels]) -> bool:
    return bool(features) and OUR_VERSION not in features


def _other_source(link_id: str, known: str, asked: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"link {link_id} carries topics from cluster {known}, not from {asked}: give the other source its own link",
    )
