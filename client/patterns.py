"""Topics by regular expression, for classic members. (In the consumer protocol the broker matches.)"""

from __future__ import annotations

import re

from ..protocol.errors import KafkaError
from ..protocol.messages import metadata
from .cluster import Client
from .errors import ClientError
from .operation import API_TIMEOUT_MS


def check_pattern(pattern: str) -> None:
    """Raises ClientError."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ClientError(f"'{pattern}' is no regular expression: {error}") from None


async def matching(client: Client, pattern: str) -> list[str]:
    """The topics whose whole name matches, sorted; none of Kafka's internal ones, as in Kafka's consumer."""
    compiled = re.compile(pattern)
    request = metadata.Request(topics=None, allow_auto_topic_creation=False)
    async with client.operation(f"topics that match '{pattern}'", API_TIMEOUT_MS) as operation:
        while True:
            try:
                found = (await client.ask_any(request, operation.patience_s)).topics
            except (ClientError, KafkaError) as error:
                await operation.again(error)
            else:
                return sorted(
                    topic.name
                    for topic in found
                    if not topic.error_code and not topic.is_internal and compiled.fullmatch(topic.name)
                )
