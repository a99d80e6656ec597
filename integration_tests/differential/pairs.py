"""Our broker and one of stock Kafka with the same options, for scenarios that need some of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import cluster

from .comparing import Comparison
from .peer import Peer


@contextmanager
def pair(
    folder: Path, options: Mapping[str, object], of_kafka: Mapping[str, object] | None = None
) -> Iterator[Comparison]:
    """Both, running; ours has its data in the folder. of_kafka: options that only Kafka has."""
    properties = {**options, **(of_kafka or {})}
    with cluster(properties=properties, heap="512m") as kafka, running_broker(folder, dict(options)) as broker:
        peers = Peer("isthmus", broker.bootstrap), Peer("stock Kafka", kafka.bootstrap)
        comparison = Comparison(*peers)
        try:
            yield comparison
        finally:
            comparison.close()
            for each in peers:
                each.close()
