"""Reads one partition of a changelog to its end. Returns the state that its markers have committed."""

from __future__ import annotations

from ...client import Admin, Client, Consumer, TopicPartition
from ...protocol import records
from ..engine.changelog import ROW_HEADER, Restored, Restorer
from ..errors import ChangelogError

POLL_MS = 500
ROUNDS_MAX = 1_000  # reads before a changelog counts as growing without end


async def load_partition(client: Client, app_id: str, topic: str, number: int) -> Restored:
    """The committed state of task `number`. Raises ChangelogError if the log is inconsistent.

    It is read until there is nothing more, not only up to its first end: compaction may meanwhile have removed records
    because of later ones.
    """
    tp = TopicPartition(topic, number)
    restorer = Restorer(app_id, f"{topic}-{number}")
    consumer = Consumer(client, auto_offset_reset="earliest")
    consumer.assign({tp: None})
    try:
        for _ in range(ROUNDS_MAX):
            end = (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
            if (consumer.position(tp) or 0) >= end:
                restored = restorer.end()
                restored.next_offset = end
                return restored
            while (consumer.position(tp) or 0) < end:
                for batches in await consumer.poll_batches(POLL_MS):
                    for record in records.iter_records(batches.records):
                        header = next((value for name, value in record.headers if name == ROW_HEADER), None)
                        key = None if record.key is None else bytes(record.key)
                        restorer.feed(key, None if record.value is None else bytes(record.value), header)
    finally:
        await consumer.close()
    raise ChangelogError(f"{topic}-{number} is written faster than it can be read")
