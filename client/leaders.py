"""Asks the leaders of partitions for something about each, until all have answered or the operation's time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..protocol.errors import KafkaError
from .cluster import NAMES_SHOWN, Client
from .errors import ClientError, ConnectionLost
from .operation import Operation
from .types import TopicPartition

Asking = Callable[[Sequence[TopicPartition]], Any]  # makes the request for a leader's partitions
Answers = dict[TopicPartition, Any]  # each partition's part of an answer


async def ask(
    client: Client,
    operation: Operation,
    what: str,
    partitions: Iterable[TopicPartition],
    asking: Asking,
) -> Answers:
    """Each partition's part of its leader's answer, without an error code. what: is asked for, as in "producers".
    Raises KafkaError, ClientError."""
    missing = dict.fromkeys(partitions)
    found: Answers = {}
    while True:
        problem = await _ask_each(client, what, list(missing), asking, found)
        if problem is None:
            return found
        for tp in found:
            missing.pop(tp, None)
        await operation.again(problem)
        await client.refresh_metadata(sorted({tp.topic for tp in missing}))


async def _ask_each(
    client: Client,
    what: str,
    missing: Sequence[TopicPartition],
    asking: Asking,
    found: Answers,
) -> KafkaError | ClientError | None:
    """Ask each leader once; adds to `found`. Returns the last problem of the missing ones."""
    problem: KafkaError | ClientError | None = None
    by_node: dict[int, list[TopicPartition]] = {}
    for tp in missing:
        by_node.setdefault(await client.leader_of(tp), []).append(tp)
    for node, tps in by_node.items():
        try:
            parts = answered(await client.request(asking(tps), node))
        except ConnectionLost as error:
            problem = error
            continue
        for tp in tps:
            where = f"{what} of {tp.topic}-{tp.partition}"
            part = parts.get(tp)
            if part is None:
                problem = ConnectionLost(f"{where}: node {node} left them out of its answer")
            elif part.error_code:
                problem = KafkaError.of(part.error_code, where)
                if not problem.retriable:
                    raise problem
            else:
                found[tp] = part
    return problem


def answered(answer: Any) -> Answers:
    """An answer by topics and partitions, taken apart."""
    return {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }


def named(what: str, partitions: Iterable[TopicPartition]) -> str:
    """What an operation is called that asks for something of these."""
    names = [f"{tp.topic}-{tp.partition}" for tp in partitions]
    return f"{what} of {', '.join(names[:NAMES_SHOWN])}{', …' * (len(names) > NAMES_SHOWN)}"
