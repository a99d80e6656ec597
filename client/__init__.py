"""An asyncio client for any Kafka: produce, consume, administer, and move raw batches."""

from .admin import Admin, NewTopic
from .cluster import Client
from .consumer import Consumer
from .fetcher import FetchedBatches
from .producer import Producer
from .types import GroupMetadata, RecordMetadata, TopicPartition

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "FetchedBatches",
    "GroupMetadata",
    "NewTopic",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
]
