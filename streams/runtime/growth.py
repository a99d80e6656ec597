"""How many partitions topics have, as far as any broker knows.

A topic grows at the controller, and each broker learns it in its own time. A producer that asked a quick one writes by
the new count while a slow one still tells the old. So before a commit all brokers are asked, and the greatest count is
true: who has told the producer is among them. Only if that one does not answer any more, and no other has learned of
the growth since, a record may be counted that is in another partition than the rows of its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...client import Client
from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ...protocol.messages import metadata

PATIENCE_MS = 1_000  # for a broker's answer
PASSED_OVER_S = 10.0  # so long a broker that has not answered is not asked again


class Growth:
    """Of one worker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._silent_until: dict[int, float] = {}  # node -> loop time

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        """The partitions of these topics. Raises ClientError, KafkaError where no broker answers."""
        await self._client.refresh_metadata(topics)
        found = {name: len(self._client.partitions(name)) for name in topics}
        now = asyncio.get_running_loop().time()
        nodes = [node for node in self._client.nodes if self._silent_until.get(node, now) <= now]
        if len(self._client.nodes) > 1:
            for answer in await asyncio.gather(*(self._of(node, topics) for node in nodes)):
                for name, count in answer.items():
                    found[name] = max(found[name], count)
        return found

    async def _of(self, node: int, topics: Sequence[str]) -> dict[str, int]:
        """What one broker knows; nothing if it does not answer."""
        message = metadata.Request(
            topics=[metadata.MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        try:
            answer = await self._client.request(message, node, PATIENCE_MS)
        except (ClientError, KafkaError):
            self._silent_until[node] = asyncio.get_running_loop().time() + PASSED_OVER_S
            return {}
        self._silent_until.pop(node, None)
        return {each.name: len(each.partitions) for each in answer.topics if each.name in topics}
