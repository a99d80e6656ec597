"""The definition of an option: its type, its limits, and how text becomes a value. `config.py` has all options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.option_notes import NO_EFFECT

MAX_SHORT = 2**15 - 1
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
HIDDEN = "[hidden]"  # shown in place of a password, as in Kafka

_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script, as in Java
_SPACES = "".join(map(chr, range(33)))  # the characters that Java trims
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Type(IntEnum):
    """Types of values, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


LIMITS = {Type.SHORT: MAX_SHORT, Type.INT: MAX_INT, Type.LONG: MAX_LONG}


class ConfigError(KafkaError):
    """A value that an option does not accept, or an unknown option name."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


@dataclass(slots=True, frozen=True)
class Option:
    """One row. `default` is the text that a user would write; None means "not set".

    `inert`: why an option of Kafka's has no effect here. It is accepted, stored and described as in Kafka.
    `refused`: why an option of Kafka's cannot be supported here. Only its default is accepted: ignoring another value
    would break a promise, such as encryption or a limit.
    """

    name: str
    type: Type
    default: str | None
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False  # the choices ignore case
    part: str = ""  # lists: the regular expression that each part must match, unless `*` is the only one
    never: tuple[int, ...] = ()  # forbidden values within the bounds
    broker: str | None = None  # topic options: the broker option that gives the default
    inert: str = ""
    refused: str = ""
    own: bool = False  # Kafka has no such option
    sealed: bool = False  # topic options: can be set only at creation
    dynamic: bool = False  # broker options: may be changed while the broker runs
    unseen: bool = False  # broker options: described only while they are set, as in Kafka

    def parse(self, text: str) -> Any:
        """The value of `text`. ConfigError names the option, the value and what is accepted."""
        value = self._typed(text)
        if self.type is Type.LIST:
            wrong = [part for part in value if self.choices and part not in self.choices]
            if wrong:
                raise self.invalid(wrong[0], f"String must be one of: {', '.join(self.choices)}")
            if self.part and value != ("*",) and not all(re.fullmatch(self.part, each) for each in value):
                raise self.invalid(text, "must be * or a list of partition:broker, such as 0:1,1:1")
        elif self.choices:
            if (value.upper() if self.any_case else value) not in self.choices:
                raise self.invalid(text, f"String must be one of: {', '.join(self.choices)}")
        elif self.low is not None and value < self.low:
            raise self.invalid(text, f"Value must be at least {self.low}")
        elif self.high is not None and value > self.high:
            raise self.invalid(text, f"Value must be no more than {self.high}")
        elif value in self.never:
            raise self.invalid(text, "this value is not allowed")
        return value

    def check(self, text: str) -> Any:
        """Like `parse`; also raises ConfigError for a value that is not supported here."""
        value = self.parse(text)
        if self.refused and value != (None if self.default is None else self.parse(self.default)):
            raise self.invalid(text, f"this value is not supported: {self.refused}")
        return value

    @property
    def documentation(self) -> str:
        """The documentation that DescribeConfigs returns."""
        notes = [NO_EFFECT + self.inert] if self.inert else []
        notes += [f"Only the default is supported: {self.refused}"] if self.refused else []
        return ". ".join(each for each in (self.doc, *notes) if each)

    def invalid(self, text: str, reason: str) -> ConfigError:
        if self.type is Type.PASSWORD:
            text = HIDDEN
        return ConfigError(f"Invalid value {text} for configuration {self.name}: {reason}")

    def text(self, value: Any) -> str | None:
        """A value as DescribeConfigs shows it."""
        if value is None:
            return None
        if self.type is Type.BOOLEAN:
            return "true" if value else "false"
        if self.type is Type.DOUBLE:
            return repr(value).replace("e+", "E")  # as Java writes it
        return ",".join(value) if self.type is Type.LIST else str(value)

    def _typed(self, text: str) -> Any:
        text = text.strip(_SPACES)
        match self.type:
            case Type.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self.invalid(text, "Expected value to be either true or false")
                return text.lower() == "true"
            case Type.INT | Type.SHORT | Type.LONG:
                limit = LIMITS[self.type]
                if _INTEGER.fullmatch(text) is None or not -limit - 1 <= int(text) <= limit:
                    raise self.invalid(text, f"Not a number of type {self.type.name}")
                return int(text)
            case Type.DOUBLE:
                if _DECIMAL.fullmatch(text) is None:
                    raise self.invalid(text, "Not a number of type DOUBLE")
                return float(text)
            case Type.LIST:
                return tuple(part.strip(_SPACES) for part in text.split(",")) if text else ()
            case _:
                return text
