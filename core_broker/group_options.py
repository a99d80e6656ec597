"""The options of a group, as Kafka 4.4 has them: consumer groups have their own; the others change nothing here.

What a group does not set is the broker's option that its row names. The broker's bounds hold for what a group sets: a
value beyond them is refused, and one that was set under other bounds counts as the nearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .config import BrokerConfig
from .option import ConfigError, Option, Type

_B, _S, _I, _L, _LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
_SHARE = "there are no share groups"
_STREAMS = "there are no streams groups"
_OFFLOAD = "assignments are made on the loop"
O = Option  # noqa: E741  the table below is read by columns

GROUP_OPTIONS: tuple[Option, ...] = (
    O("consumer.assignment.interval.ms", _I, "1000", "Shortest time between two assignments", 0,
      broker="group.consumer.assignment.interval.ms"),
    O("consumer.assignor.offload.enable", _B, "true", "Whether assignments are made in the background", unseen=True,
      broker="group.consumer.assignor.offload.enable", inert=_OFFLOAD),
    O("consumer.heartbeat.interval.ms", _I, "5000", "How often members send heartbeats", 1,
      broker="group.consumer.heartbeat.interval.ms"),
    O("consumer.session.timeout.ms", _I, "45000", "How long a member may be silent", 1,
      broker="group.consumer.session.timeout.ms"),
    O("errors.deadletterqueue.copy.record.enable", _B, "false", "Whether dead letters hold their records",
      inert=_SHARE),
    O("errors.deadletterqueue.topic.name", _S, "", "Topic of dead letters", inert=_SHARE),
    O("share.assignment.interval.ms", _I, "1000", "Shortest time between two assignments", 0,
      broker="group.share.assignment.interval.ms", inert=_SHARE),
    O("share.assignor.offload.enable", _B, "true", "Whether assignments are made in the background", unseen=True,
      broker="group.share.assignor.offload.enable", inert=_SHARE),
    O("share.auto.offset.reset", _S, "latest", "Where a new group begins", inert=_SHARE),
    O("share.delivery.count.limit", _I, "5", "Most deliveries of a record", 2,
      broker="group.share.delivery.count.limit", inert=_SHARE),
    O("share.heartbeat.interval.ms", _I, "5000", "How often members send heartbeats", 1,
      broker="group.share.heartbeat.interval.ms", inert=_SHARE),
    O("share.isolation.level", _S, "read_uncommitted", "Which records of transactions are delivered",
      choices=("read_committed", "read_uncommitted"), inert=_SHARE),
    O("share.partition.max.record.locks", _I, "2000", "Most records of a partition under way", 100,
      broker="group.share.partition.max.record.locks", inert=_SHARE),
    O("share.record.lock.duration.ms", _I, "30000", "How long a record is a member's", 1000,
      broker="group.share.record.lock.duration.ms", inert=_SHARE),
    O("share.renew.acknowledge.enable", _B, "true", "Whether that time can be renewed", inert=_SHARE),
    O("share.session.timeout.ms", _I, "45000", "How long a member may be silent", 1,
      broker="group.share.session.timeout.ms", inert=_SHARE),
    O("streams.acceptable.recovery.lag", _L, "10000", "Most offsets that a task may be behind", 0, unseen=True,
      broker="group.streams.acceptable.recovery.lag", inert=_STREAMS),
    O("streams.assignment.interval.ms", _I, "1000", "Shortest time between two assignments", 0,
      broker="group.streams.assignment.interval.ms", inert=_STREAMS),
    O("streams.assignor.name", _S, None, "Which assignor is used", broker="group.streams.assignors", inert=_STREAMS),
    O("streams.assignor.offload.enable", _B, "true", "Whether assignments are made in the background", unseen=True,
      broker="group.streams.assignor.offload.enable", inert=_STREAMS),
    O("streams.heartbeat.interval.ms", _I, "5000", "How often members send heartbeats", 1,
      broker="group.streams.heartbeat.interval.ms", inert=_STREAMS),
    O("streams.initial.rebalance.delay.ms", _I, "3000", "How long a new group waits for more members", 0,
      broker="group.streams.initial.rebalance.delay.ms", inert=_STREAMS),
    O("streams.num.standby.replicas", _I, "0", "Standby replicas of each task", 0,
      broker="group.streams.num.standby.replicas", inert=_STREAMS),
    O("streams.num.warmup.replicas", _I, "2", "Most tasks that warm up", 0, unseen=True,
      broker="group.streams.num.warmup.replicas", inert=_STREAMS),
    O("streams.rack.aware.assignment.tags", _LIST, "", "Tags by which standby replicas are spread",
      broker="group.streams.rack.aware.assignment.tags", inert=_STREAMS),
    O("streams.session.timeout.ms", _I, "45000", "How long a member may be silent", 1,
      broker="group.streams.session.timeout.ms", inert=_STREAMS),
    O("streams.task.offset.interval.ms", _I, "60000", "How often members tell offsets of tasks", 1, unseen=True,
      broker="group.streams.task.offset.interval.ms", inert=_STREAMS),
)  # fmt: skip

_BY_NAME: Mapping[str, Option] = {option.name: option for option in GROUP_OPTIONS}

# What a group may set lies between two options of the broker, `group.KIND.min.REST` and `group.KIND.max.REST`.
_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
_AT_MOST = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}
_KINDS = ("consumer", "share", "streams")
_RESET = re.compile(r"earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.I)


def group_option(name: str) -> Option:
    """Raises ConfigError for an unknown name."""
    option = _BY_NAME.get(name)
    if option is None:
        raise ConfigError(f"Unknown group config name: {name}")
    return option


def group_value(option: Option, options: Mapping[str, str], config: BrokerConfig) -> Any:
    """The value of an option in a group with these own options, as it was set or as the broker has it."""
    if option.name in options:
        return option.parse(options[option.name])
    if option.name == "streams.assignor.name":
        return next(iter(config["group.streams.assignors"]), None)
    if option.broker is not None and not option.unseen:
        return config[option.broker]
    return None if option.default is None else option.parse(option.default)


def value_in_force(name: str, options: Mapping[str, str], config: BrokerConfig) -> int:
    """The number that a group goes by: its own within the broker's bounds, or the broker's."""
    option = _BY_NAME[name]
    value: int = group_value(option, options, config)
    if name not in options:
        return value
    low, high = _bounds(name, config)
    return min(max(value, low), high)


def validate_group_options(options: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises ConfigError for a group's own options that cannot be, in Kafka's order and words."""
    rows = {name: group_option(name) for name in options}
    _check_tags(options.get("streams.rack.aware.assignment.tags"))
    values = {name: row.parse(options[name]) for name, row in rows.items()}
    reset = options.get("share.auto.offset.reset")
    if reset is not None and _RESET.fullmatch(reset.strip()) is None:
        raise rows["share.auto.offset.reset"].invalid(
            reset,
            f"Invalid value `{reset}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )
    for name in _BOUNDED:
        low, high = _bounds(name, config)
        if name in values and not low <= values[name] <= high:
            raise ConfigError(f"{name} must be in the range {low} to {high} inclusive.")
    for name, limit in _AT_MOST.items():
        if name in values and values[name] > config[limit]:
            raise ConfigError(f"{name} must be less than or equal to {config[limit]}")
    assignor, known = values.get("streams.assignor.name"), config["group.streams.assignors"]
    if assignor is not None and assignor not in known:
        raise ConfigError(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(known)}]."
        )
    for kind in _KINDS:
        _check_session(kind, values, config)
    if str(values.get("errors.deadletterqueue.topic.name", "")).startswith("__"):
        raise ConfigError("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")


def _bounds(name: str, config: BrokerConfig) -> tuple[int, int]:
    kind, _, rest = name.partition(".")
    return config[f"group.{kind}.min.{rest}"], config[f"group.{kind}.max.{rest}"]


def _check_tags(text: str | None) -> None:
    tags = [each.strip() for each in text.split(",")] if text is not None and text.strip() else []
    if len(set(tags)) < len(tags):
        raise ConfigError("streams.rack.aware.assignment.tags must not contain duplicate tag keys.")


def _check_session(kind: str, values: Mapping[str, Any], config: BrokerConfig) -> None:
    """A session lasts longer than the time between two heartbeats."""
    session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and interval not in values:
        return
    if values.get(session, config[f"group.{session}"]) <= values.get(interval, config[f"group.{interval}"]):
        raise ConfigError(f"{session} must be greater than {interval}")
