"""Reads one partition of a changelog to its end and gives what its markers committed."""

from __future__ import annotations

from ...client import Admin, Client, Consumer, TopicPartition
from ...protocol import records
from ..api.app import App
from ..engine.checkpoint import RUN_HEADER, Restored, Restorer

POLL_MS = 500


async def load(client: Client, app: App, number: int, end: int | None) -> Restored:
    """The state of task `number` that was committed before offset `end` of its changelog (None: before now)."""
    return await load_partition(client, app.id, app.changelog_topic, number, end)


async def load_partition(client: Client, app_id: str, topic: str, number: int, end: int | None = None) -> Restored:
    """The committed state of task `number`; end None: now. Raises ChangelogError when the log does not add up."""
    tp = TopicPartition(topic, number)
    if end is None:
        end = (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
    restorer = Restorer(app_id, f"{topic}-{number}")
    if end > 0:
        consumer = Consumer(client, auto_offset_reset="earliest")
        consumer.assign({tp: None})
        try:
            while (consumer.position(tp) or 0) < end:
                for batches in await consumer.poll_batches(POLL_MS):
                    for record in records.iter_records(batches.records):
                        if record.offset >= end:
                            break
                        run = next((value for name, value in record.headers if name == RUN_HEADER), None)
                        key = None if record.key is None else bytes(record.key)
                        restorer.feed(key, None if record.value is None else bytes(record.value), run)
        finally:
            await consumer.close()
    return restorer.end()
