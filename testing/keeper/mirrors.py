"""Asks the clusters at both ends of mirrors how far each partition came, and the targets what the mirrors say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...client import Admin, Client, TopicPartition
from ...client.errors import ClientError
from ...deploy.topology import Mirror
from ...mirror.link import MirrorLink
from ...mirror.status import read_status
from ...protocol.errors import KafkaError
from ..status import MirrorStatus

ASK_TIMEOUT_S = 5.0  # for a cluster that runs
Ends = dict[TopicPartition, int]
Answer = TypeVar("Answer")


class Observer:
    """Clients of the clusters of some mirrors, while it is entered.

    addresses: HOST:PORT by datacenter; one that is not in it is known not to answer.
    silent: the datacenters that did not answer when `status` last asked.
    """

    def __init__(self, links: Iterable[Mirror], addresses: Mapping[str, str]) -> None:
        self._links = list(links)
        self.silent: set[str] = set()
        self._unheard: set[str] = set()  # the same, while `status` asks
        names = dict.fromkeys(name for link in self._links for name in (link.source, link.target))
        self._clients = {name: Client(addresses[name], "isthmus-testing") for name in names if name in addresses}

    async def __aenter__(self) -> Observer:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    async def status(self) -> list[MirrorStatus]:
        """Every mirrored partition, sorted by mirror, topic and partition."""
        self._unheard = set()
        found = await asyncio.gather(*(self._of(link) for link in self._links))
        self.silent = self._unheard  # not before: whoever breaks this off has heard of nobody
        return sorted((row for rows in found for row in rows), key=lambda row: (row.mirror, row.topic, row.partition))

    async def _of(self, link: Mirror) -> list[MirrorStatus]:
        names = MirrorLink(link.name, link.source, link.topics, link.rename)
        said = {
            TopicPartition(row["topic"], row["partition"]): row
            for row in await self._ask(link.target, read_status) or ()
            if row["link"] == link.name and row["topic"]  # else it is of the link as a whole
        }
        source_ends = await self._ask(link.source, lambda client: end_offsets(client, names.selects))
        tps = sorted({*(source_ends or ()), *said})
        counterparts = {names.target_name(tp.topic): None for tp in tps}
        target_ends = await self._ask(link.target, lambda client: end_offsets(client, counterparts.__contains__))
        rows = []
        for tp in tps:
            there = TopicPartition(names.target_name(tp.topic), tp.partition)
            words = said.get(tp, {"state": None, "reason": ""})
            source_end = None if source_ends is None else source_ends.get(tp, 0)
            target_end = None if target_ends is None else target_ends.get(there, 0)
            rows.append(
                MirrorStatus(
                    link.name,
                    tp.topic,
                    tp.partition,
                    there.topic,
                    source_end,
                    target_end,
                    words["state"],
                    words["reason"],
                )
            )
        return rows

    async def _ask(self, datacenter: str, question: Callable[[Client], Awaitable[Answer]]) -> Answer | None:
        """None: the cluster does not answer."""
        if client := self._clients.get(datacenter):
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    return await question(client)
            except (TimeoutError, ClientError):
                pass
            except KafkaError as error:
                if not error.retriable:  # a leader that is not known yet, for one, is
                    raise
        self._unheard.add(datacenter)
        return None


async def end_offsets(client: Client, selects: Callable[[str], Any]) -> Ends:
    """Where the logs of the selected topics' partitions end."""
    topics = [name for name in await Admin(client).list_topics() if selects(name)]
    if not topics:
        return {}
    await client.refresh_metadata(topics)
    tps = [TopicPartition(topic, index) for topic in topics for index in client.partitions(topic)]
    found = await Admin(client).list_offsets(dict.fromkeys(tps, "latest"))
    return {tp: found[tp][0] for tp in tps}
