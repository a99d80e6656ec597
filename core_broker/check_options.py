"""`python -m isthmus.core_broker options`: finds options that a broker would refuse. The caller, who has read them from
a file, can then say where they are. Nothing is started.

stdin: a JSON array with entries ["broker" or "topic", {name: value}]. stdout: a JSON array of [index, name, problem];
name is "" if options contradict each other.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping

from .config import BrokerConfig, ConfigError, validate_topic_options
from .server.listener import parse_address, planned

ADDRESSES = ("advertised.listeners", "metrics.listener")  # a broker checks these only when it opens sockets

Options = Mapping[str, str]


def main() -> int:
    found = [
        (index, *each) for index, (kind, options) in enumerate(json.load(sys.stdin)) for each in wrong(kind, options)
    ]
    json.dump(found, sys.stdout)
    return 0


def wrong(kind: str, options: Options) -> Iterator[tuple[str, str]]:
    """Name and reason of each option that would be refused."""
    check: Callable[[Options], None] = _check_broker if kind == "broker" else validate_topic_options
    each_is_right = True
    for name, text in options.items():
        if reason := _refusal(check, {name: text}):
            each_is_right = False
            yield name, reason
    if each_is_right and (reason := _refusal(check, options) or _refusal(_check_listeners, options)):
        yield "", reason


def _check_listeners(options: Options) -> None:
    """If there are listeners, check them together with the other options."""
    if "listeners" in options:
        planned(BrokerConfig(options))


def _check_broker(options: Options) -> None:
    config = BrokerConfig(options)
    for name in ADDRESSES:
        given = config[name] if name in options else ()
        for text in (given,) if isinstance(given, str) else given:
            parse_address(text, name)


def _refusal(check: Callable[[Options], None], options: Options) -> str | None:
    try:
        check(options)
    except ConfigError as error:
        return error.message
    return None
