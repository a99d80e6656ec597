"""Changes of options: what a broker checks before it asks the controller, and how the answers are put together.

A request may name a resource once, and a resource an option once. Options of a broker are changed at that broker alone,
which knows what can be changed while it runs (KIP-226). The controller does not see what is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.controller.common import Command, duplicates
from ..cluster.controller.resources import AlteredResource, unknown_kind
from ..cluster.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ..config import CLEANER_BUFFER_LEAST, BrokerConfig, broker_option, check_cordoned, validate_broker_options
from ..option import ConfigError
from ..purgatory import Pending
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
CORDONED = "cordoned.log.dirs"
CLEANER_BUFFER = "log.cleaner.dedupe.buffer.size"
NUMBER = re.compile(r"[+-]?\d{1,10}")  # Python's int() would take spaces and underscores, too

Decided = Callable[[Iterable[AlteredResource]], Any]  # what the controller says of each resource -> the answer
Ask = Callable[[Command, Any, Decided, Context], Pending]


@dataclass(slots=True, frozen=True)
class Kind:
    """What AlterConfigs and IncrementalAlterConfigs have of their own.

    nulls: names that a resource sets to null. changed(resource, its options): the options after the change; raises
    KafkaError. command(request, resources): has the controller change some of a request's resources; part(request,
    resources): the request for these alone. answer(items): has one row for each, in order. here(request, resource,
    context): changes a resource that is this broker's own, and gives whether it was one; raises KafkaError.
    """

    nulls: Callable[[Any], list[str]]
    changed: Callable[[Any, Mapping[str, str]], dict[str, str]]
    command: Callable[[Any, list[Any]], Command]
    part: Callable[[Any, list[Any]], Any]
    answer: Callable[[list[AlteredResource]], Any]
    here: Callable[[Any, Any, Context], bool] = lambda request, resource, context: False


def change(kind: Kind, request: Any, context: Context) -> Any:
    """At a broker: check a request, and have the controller change what is sound in it."""
    ask = _submit if context.services.channel is None else _forward
    return _change(kind, request, context, lambda resource: _check_here(kind, request, resource, context), ask)


def change_at_controller(kind: Kind, request: Any, context: Context) -> Any:
    """At the active controller: change what a broker, or a client, has asked for. No option is this node's own."""
    return _change(kind, request, context, _check_kind, _submit)


def _change(kind: Kind, request: Any, context: Context, check: Callable[[Any], bool], ask: Ask) -> Any:
    """check: raises KafkaError for a resource that is refused; gives whether it is left to the controller."""
    twice = duplicates([(each.resource_type, each.resource_name) for each in request.resources])
    items: list[AlteredResource] = []
    sound: list[Any] = []
    for resource in request.resources:
        item = AlteredResource(resource_type=resource.resource_type, resource_name=resource.resource_name)
        items.append(item)
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if duplicates([config.name for config in resource.configs]):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            if missing := kind.nulls(resource):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
            sound += [resource] if check(resource) else []
        except KafkaError as error:
            item.error_code, item.error_message = error.code, error.message

    def decided(rows: Iterable[AlteredResource]) -> Any:
        found = {(row.resource_type, row.resource_name): row for row in rows}  # a controller has an order of its own
        return kind.answer([found.get((item.resource_type, item.resource_name), item) for item in items])

    if not sound:
        return decided(())
    return ask(kind.command(request, sound), kind.part(request, sound), decided, context)


def _submit(command: Command, request: Any, decided: Decided, context: Context) -> Pending:
    timeout_ms = context.services.config["request.timeout.ms"]
    return submit(command, timeout_ms, lambda result: decided(result.items), context)


def _forward(command: Command, request: Any, decided: Decided, context: Context) -> Pending:
    """Have the active controller answer a request. command: the same, for its errors."""
    from .forwarding import forward

    api, version = type(request).API, context.version

    def answered(body: bytes) -> Any:
        return decided(
            AlteredResource(row.error_code, row.error_message, row.resource_type, row.resource_name)
            for row in api.decode_response(body, 0, version).responses
        )

    def refused(error: KafkaError) -> Any:
        return decided(command.fail(error).items)

    return forward(request, context, context.services.config["request.timeout.ms"], answered, refused)


def _check_here(kind: Kind, request: Any, resource: Any, context: Context) -> bool:
    """What only a broker can check: that it is the one, and that it could work with the options. Raises KafkaError."""
    if kind.here(request, resource, context):
        return False
    name = resource.resource_name
    if resource.resource_type == BROKER_RESOURCE:
        if name:
            check_broker_name(name, context.services.node_id)
        after = kind.changed(resource, context.services.image.broker_configs.get(name, {}))
        validate_broker_options(after)
        check_directories(after, context.services.config)
        check_pools(after, context.services.config)
    else:
        _check_kind(resource)
    return True


def _check_kind(resource: Any) -> bool:
    if resource.resource_type not in (BROKER_RESOURCE, TOPIC_RESOURCE, GROUP_RESOURCE):
        raise unknown_kind(resource.resource_type)
    return True


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


def check_directories(options: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise INVALID_REQUEST for a directory to be cordoned that this broker does not have."""
    try:
        check_cordoned(broker_option(CORDONED).parse(options.get(CORDONED, "")), config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"requirement failed: {error.message}") from None


def check_broker_name(name: str, node_id: int) -> None:
    """Raise INVALID_REQUEST unless a resource's name is this broker's id, as Java reads a number."""
    if NUMBER.fullmatch(name) is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
