"""Which worker has a key: by the key's partition, and by what the group's leader has told of who runs which task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...client.joining import CONSUMER
from ..api.routing import ByUrl, NoOwner
from ..engine.codecs import encode_key
from ..engine.key_text import encodings, readings
from ..engine.partitioning import partition_of
from ..engine.task import TaskId
from ..engine.topology import SubTopology
from .worker import StreamWorker


class GroupOwners:
    """`Owners` of a worker.

    A table's rows are where the records are from which they came. So a key of a table is taken for the key of records:
    the same text or bytes. Where an app's tables have other keys than its records, a row that is here is found, and
    others are looked for in the wrong place.
    """

    def __init__(self, worker: StreamWorker) -> None:
        self.worker = worker

    def owner_url(self, table: str, key: Any) -> str | None:
        if table in self.worker.app.global_tables:
            return None  # each worker has all rows
        subtopology = self.worker.layout.topology.of_table(table)
        if subtopology is None:
            raise NoOwner(f"no agent was seen to use table {table}")
        spec = self.worker.app.all_tables()[table]
        wanted = readings(key, spec.key_type) if isinstance(key, str) else [key]
        if any(each in store.rows for store in self.worker.stores(table) for each in wanted):
            self.check_session()
            return None
        tasks = self.tasks_of(table, key)
        return self.url_of(next((task for task in tasks if task in self.worker.running), tasks[0]))

    def check_session(self) -> None:
        """Raises NoOwner where another worker may have the tasks of this one, which was paused or cut off."""
        if unheard_ms := self.worker.unheard_ms:
            raise NoOwner(
                f"the group has not answered this worker for {unheard_ms} ms: another may have its tasks; try later"
            )

    def tasks_of(self, table: str, key: Any) -> list[TaskId]:
        """The task that has the row of a key; of text, which may be several keys, the one of each. Raises NoOwner where
        it is not known."""
        subtopology = self.worker.layout.topology.of_table(table)
        if subtopology is None:
            raise NoOwner(f"no agent was seen to use table {table}")
        keys = encodings(key, self.worker.app.all_tables()[table].key_type) if isinstance(key, str) else [key]
        count = self.worker.layout.tables[table]
        return list(dict.fromkeys(self._task(subtopology.name, each, count) for each in keys))

    def topic_owner_url(self, topic: str, key: Any) -> str | None:
        if topic not in self.worker.layout.topics:
            raise NoOwner(f"the app reads no topic {topic}")
        count = len(self.worker.client.partitions(topic))
        return self.url_of(self._task(self.worker.layout.topology.of_topic(topic).name, key, count))

    def url_of(self, task: TaskId) -> str | None:
        """Of the worker that runs a task; None: this one. Raises NoOwner."""
        if task in self.worker.running:
            self.check_session()
            return None
        url = self.worker.told.owners.get(task)
        if not url or url == self.worker.url:
            if self.worker.app.conf.group_protocol == CONSUMER:
                raise NoOwner(
                    f"task {task} is elsewhere, and with group_protocol='consumer' no worker is told where: ask each"
                )
            raise NoOwner(f"no worker with a web server is known that has task {task}: try again later")
        return url

    def changelogs(self) -> ByUrl:
        app, counts = self.worker.app, self.worker.layout.tables
        return self._by_url(lambda part: {app.changelog_topic(table): counts[table] for table in part.tables})

    def inputs(self) -> ByUrl:
        client = self.worker.client
        return self._by_url(lambda part: {topic: len(client.partitions(topic)) for topic in part.topics})

    def _by_url(self, counts_of: Callable[[SubTopology], dict[str, int]]) -> ByUrl:
        """counts_of: topics of a sub-topology -> how many partitions they have."""
        parts = self.worker.layout.topology.subtopologies
        owners = {**self.worker.told.owners, **dict.fromkeys(self.worker.running, self.worker.url)}
        found: ByUrl = {}
        for task, url in sorted(owners.items()):
            if task.subtopology not in parts:
                continue
            for topic, count in counts_of(parts[task.subtopology]).items():
                if task.partition < count:
                    found.setdefault(url, {}).setdefault(topic, []).append(task.partition)
        return found

    def _task(self, subtopology: str, key: Any, partitions: int) -> TaskId:
        data = encode_key(key)
        if data is None or not partitions:
            raise NoOwner("the number of partitions is not known yet")
        partition = partition_of(data, partitions, self.worker.layout.rule_of(subtopology))
        if partition is None:
            raise NoOwner(f"the topics of {subtopology} are not partitioned by key")
        return TaskId(subtopology, partition)
