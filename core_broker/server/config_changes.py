"""Changes of options: what a broker checks before it asks the controller, and how the answers are put together.

A request may name a resource once, and a resource an option once. Options of a broker are changed at that broker alone,
which knows what can be changed while it runs (KIP-226). The controller does not see what is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.controller.common import Command, Result, duplicates
from ..cluster.controller.resources import AlteredResource, unknown_kind
from ..cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from ..config import CLEANER_BUFFER_LEAST, BrokerConfig, broker_option, validate_broker_options
from ._context import Context
from .topics import submit

CLEANER_THREADS = "log.cleaner.threads"
POOLS = (  # of threads, which Kafka lets double or halve at a time; only the first is one here
    CLEANER_THREADS,
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
CLEANER_BUFFER = "log.cleaner.dedupe.buffer.size"
NUMBER = re.compile(r"[+-]?\d{1,10}")  # Python's int() would take spaces and underscores, too
Changed = Callable[[Any, Mapping[str, str]], dict[str, str]]  # (resource, its options) -> its options after the change


def change(
    resources: Sequence[Any],
    nulls: Callable[[Any], list[str]],
    changed: Changed,
    command: Callable[[list[Any]], Command],
    answer: Callable[[list[AlteredResource]], Any],
    context: Context,
    here: Callable[[Any], bool] = lambda resource: False,
) -> Any:
    """Have the controller change the resources of a request; `answer(items)` has one for each, in order.

    nulls: names that a resource sets to null. changed: what a change makes of a broker's options; raises KafkaError.
    here: changes a resource that is this broker's own, and gives whether it was one; raises KafkaError.
    """
    twice = duplicates([(each.resource_type, each.resource_name) for each in resources])
    items: list[AlteredResource | None] = []
    sound: list[Any] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if (kind, name) in twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if duplicates([config.name for config in resource.configs]):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            if missing := nulls(resource):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
            if here(resource):
                items.append(AlteredResource(ErrorCode.NONE, None, kind, name))
                continue
            if kind == BROKER_RESOURCE:
                if name:
                    check_broker_name(name, context.services.node_id)
                after = changed(resource, context.services.image.broker_configs.get(name, {}))
                validate_broker_options(after)
                check_pools(after, context.services.config)
            elif kind != TOPIC_RESOURCE:
                raise unknown_kind(kind)
        except KafkaError as error:
            items.append(AlteredResource(error.code, error.message, kind, name))
        else:
            items.append(None)
            sound.append(resource)
    if not sound:
        return answer([item for item in items if item is not None])

    def decided(result: Result) -> Any:
        decisions = iter(result.items)
        return answer([next(decisions) if item is None else item for item in items])

    return submit(command(sound), context.services.config["request.timeout.ms"], decided, context)


def check_pools(options: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise INVALID_REQUEST for a number of threads that is less than half, or more than double, of what there are."""
    for name in POOLS:
        now, text = config[name], options.get(name)
        wanted: int = now if text is None else broker_option(name).parse(text)
        if not max(1, now // 2) <= wanted <= 2 * now:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} is {now} and cannot be {wanted}: half or double at most"
            )
    text = options.get(CLEANER_THREADS)
    threads: int = config[CLEANER_THREADS] if text is None else broker_option(CLEANER_THREADS).parse(text)
    text = options.get(CLEANER_BUFFER)
    if text is not None and broker_option(CLEANER_BUFFER).parse(text) // threads <= CLEANER_BUFFER_LEAST:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLEANER_BUFFER} must be more than 1 MiB for each cleaner thread")


def check_broker_name(name: str, node_id: int) -> None:
    """Raise INVALID_REQUEST unless a resource's name is this broker's id, as Java reads a number."""
    if NUMBER.fullmatch(name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
