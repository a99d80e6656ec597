"""Ends the containers of a test's process when that process is gone: what Ryuk does for testcontainers, without an
image of its own and without the engine's socket in a container."""

from __future__ import annotations

import asyncio

from ...client import Client
from ...client.errors import ClientError
from ..labels import remove

ANSWER_TIMEOUT_MS = 1_000


class Reaper:
    """owner: whose things are removed at the end."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    async def serves(self, bootstrap: str) -> bool:
        """Whether a broker answers there."""
        client = Client(bootstrap, "isthmus-testing")
        try:
            await client.refresh_metadata([], timeout_ms=ANSWER_TIMEOUT_MS)
        except ClientError:
            return False
        finally:
            await client.close()
        return True

    async def stop(self) -> None:
        await asyncio.to_thread(remove, self.owner)
