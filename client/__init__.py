"""An asyncio client for any Kafka: produce, consume, administer, and move raw batches."""

from .admin import Admin, NewTopic
from .cluster import Client
from .consumer import Consumer
from .fetcher import FetchedBatches
from .outcomes import Acknowledged
from .producer import Producer
from .types import GroupMetadata, Progress, RecordMetadata, TopicPartition

__all__ = [
    "Acknowledged",
    "Admin",
    "Client",
    "Consumer",
    "FetchedBatches",
    "GroupMetadata",
    "NewTopic",
    "Producer",
    "Progress",
    "RecordMetadata",
    "TopicPartition",
]
