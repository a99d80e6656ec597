"""Options as DescribeConfigs shows them: the value in force, its source, and where else it is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from .config import BROKER_OPTIONS, TIME_FALLBACKS, TOPIC_OPTIONS, BrokerConfig, broker_option, topic_value
from .group_options import GROUP_OPTIONS, group_value
from .option import Option


class Source(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


Synonym = tuple[str, str, Source]  # name, value, where it was set

# Broker options with the same meaning in other units.
_SAME: dict[str, tuple[str, ...]] = {
    fallback[0][0]: tuple(name for name, _ in fallback) for fallback in TIME_FALLBACKS.values()
}
_SAME |= {name: names for names in list(_SAME.values()) for name in names if name != "log.flush.scheduler.interval.ms"}


@dataclass(slots=True, frozen=True)
class Entry:
    """One option as DescribeConfigs shows it."""

    option: Option
    value: str | None
    source: Source
    read_only: bool
    synonyms: list[Synonym] = field(default_factory=list)


def broker_entries(config: BrokerConfig) -> list[Entry]:
    """All broker options, by name."""
    return [
        _entry(option, option.text(config[option.name]), not option.dynamic, _synonyms(option.name, config))
        for option in BROKER_OPTIONS
        if not option.unseen or config[option.name] is not None
    ]


def cluster_entries(config: BrokerConfig) -> list[Entry]:
    """The options that are set dynamically for all brokers, by name."""
    entries = []
    for name, text in sorted(config.of_all_brokers.items()):
        option = broker_option(name)
        own = [each for each in _synonyms(name, config) if each[2] is Source.DYNAMIC_DEFAULT_BROKER]
        entries.append(_entry(option, option.text(option.parse(text)), not option.dynamic, own))
    return entries


def source_at_creation(option: Option, given: Mapping[str, str], config: BrokerConfig) -> Source:
    """The source that CreateTopics shows: unlike DescribeConfigs, it considers broker options in other units."""
    if option.name in given:
        return Source.TOPIC
    names = [name for name, _ in TIME_FALLBACKS.get(option.name, ((option.broker, 1),))]
    for level, source in _levels(config):
        if any(name in level for name in names):
            return source
    return Source.DEFAULT


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig) -> list[Entry]:
    """All topic options, by name, of a topic with `overrides`."""
    entries = []
    for option in TOPIC_OPTIONS:
        synonyms = [] if option.broker is None else _synonyms(option.broker, config)
        value = option.text(topic_value(option, overrides, config))
        if option.name in overrides:
            synonyms.insert(0, (option.name, str(value), Source.TOPIC))
        entries.append(_entry(option, value, option.sealed, synonyms))
    return entries


def group_entries(overrides: Mapping[str, str], config: BrokerConfig) -> list[Entry]:
    """The options of a group with `overrides`, by name; Kafka's internal ones only where they are set."""
    entries = []
    for option in GROUP_OPTIONS:
        if option.unseen and option.name not in overrides:
            continue
        value = option.text(group_value(option, overrides, config))
        if option.broker is not None and not option.unseen:
            synonyms = _synonyms(option.broker, config)
        else:
            synonyms = [(option.broker or option.name, str(option.default), Source.DEFAULT)]
        if option.name in overrides:
            synonyms.insert(0, (option.name, str(value), Source.GROUP))
        entries.append(_entry(option, value, False, synonyms))
    return entries


def _entry(option: Option, value: str | None, read_only: bool, synonyms: list[Synonym]) -> Entry:
    return Entry(option, value, synonyms[0][2] if synonyms else Source.DEFAULT, read_only, synonyms)


def _levels(config: BrokerConfig) -> list[tuple[Mapping[str, str], Source]]:
    return [
        (config.of_this_broker, Source.DYNAMIC_BROKER),
        (config.of_all_brokers, Source.DYNAMIC_DEFAULT_BROKER),
        (config.given, Source.STATIC_BROKER),
    ]


def _synonyms(name: str, config: BrokerConfig) -> list[Synonym]:
    """Where a broker option, or one with the same meaning in another unit, is set, by precedence.

    As in Kafka, the others are listed only if the option itself is set at a higher level.
    """
    names = _SAME.get(name, (name,))
    found: list[Synonym] = []
    for level, source in _levels(config):
        found += [(each, level[each], source) for each in names if each in level]
    for each in names:
        default = broker_option(each).default
        if default is not None:
            found.append((each, default, Source.DEFAULT))
    first = next((i for i, synonym in enumerate(found) if synonym[0] == name), len(found))
    return found[first:]
