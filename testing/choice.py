"""Where brokers of tests run: in Docker, or as processes on this machine. One variable decides, or what is there.

`ISTHMUS_TESTING=docker` and `=local` say it. Unset, it is Docker where an engine answers that holds our image and the
package testcontainers is installed, else local: a suite runs on any laptop, and says where it ran and why.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..deploy import engine
from .errors import IsthmusTestingError

VARIABLE = "ISTHMUS_TESTING"
IMAGE_VARIABLE = "ISTHMUS_IMAGE"  # of compose files, too


class Backend(StrEnum):
    DOCKER = "docker"
    LOCAL = "local"


@dataclass(frozen=True)
class Choice:
    """A backend, and why it is this one, in words that follow the backend's name."""

    backend: Backend
    reason: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}"


def choose(environment: Mapping[str, str] = os.environ) -> Choice:
    """Which backend to use. Raises IsthmusTestingError for a value of `ISTHMUS_TESTING` that is neither."""
    if (said := asked(environment)) is not None:
        return Choice(said, f"{VARIABLE}={said}")
    return _found()


def asked(environment: Mapping[str, str] = os.environ) -> Backend | None:
    """What the variable says; None when it is not set."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        return Backend(text.lower())
    except ValueError:
        raise IsthmusTestingError(
            f"{VARIABLE}={text} is neither docker nor local: set one of them, or unset it and Docker is used where "
            "an engine answers"
        ) from None


@functools.cache
def _found() -> Choice:
    """Asked once a process: an engine that does not answer is waited for."""
    if why := _no_testcontainers():
        return Choice(Backend.LOCAL, why)
    try:
        version = engine.require()
        if not engine.has_image(image()):
            return Choice(Backend.LOCAL, f"Docker runs but has no image {image()}; `isthmus image build` makes it")
    except engine.EngineError as error:
        return Choice(Backend.LOCAL, str(error))
    return Choice(Backend.DOCKER, f"Docker {version.engine} answers and has {image()}")


def image() -> str:
    """What runs in Docker: this version's own image, or what `ISTHMUS_IMAGE` names."""
    return os.environ.get(IMAGE_VARIABLE) or engine.IMAGE


def require_docker(wanted: str) -> None:
    """Raises an error of one line with the way out unless Docker can run the image `wanted` for tests."""
    require_testcontainers()
    try:
        engine.require()
        engine.require_image(wanted)
    except engine.EngineError as error:
        raise IsthmusTestingError(f"{error}; or set {VARIABLE}=local, which needs no Docker") from None


def require_testcontainers() -> None:
    """Raises an error of one line with the way out where the package is not installed."""
    if why := _no_testcontainers():
        raise IsthmusTestingError(f"{why}, or set {VARIABLE}=local")


def _no_testcontainers() -> str:
    if importlib.util.find_spec("testcontainers"):
        return ""
    return "the package testcontainers is not installed: `pip install 'isthmus[testing]'`"
