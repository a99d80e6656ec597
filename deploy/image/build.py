"""Builds the image: finds or makes its bases, fetches what goes in, and lets Docker build it without a network."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import engine
from ..engine import IMAGE, SPARK_IMAGE, EngineError
from . import base as bases
from .context import PYTHON, Say, assemble, copy_source

BASE = "python:3.11-slim-bookworm"
BUILD_BASE = "python:3.11-bookworm"  # with a C compiler
SOURCE_LABEL = "isthmus.source"
PULL_TIMEOUT_S = 900.0
BUILD_TIMEOUT_S = 1_800.0
SAID_LINES = 12  # of a build that failed, shown with the error
# The version of the C library, and where Python lies: the environment in the image is linked to it.
PROBE = (
    "import platform as p, sys; print('%d.%d' % sys.version_info[:2], p.libc_ver()[0] or 'other', sys._base_executable)"
)


@dataclass(frozen=True)
class Choice:
    """What a person asked for. Empty texts: the defaults, or what debootstrap makes where those cannot be had."""

    base: str = ""
    build_base: str = ""
    debootstrap: bool = False
    mirror: str = ""
    spark: bool = False


@dataclass(frozen=True)
class Built:
    """An image that is there. `records`: whether its record loops are compiled."""

    image: str
    id: str
    size_bytes: int
    records: str
    base: str


def build(choice: Choice, say: Say, on_line: Callable[[str], None]) -> Built:
    """Build the image; `say` is told the steps, `on_line` what Docker prints. Raises EngineError."""
    arch = engine.require().arch
    base, build_base = _bases(choice, say)
    image, target = (SPARK_IMAGE, "spark") if choice.spark else (IMAGE, "isthmus")
    needs_network = choice.spark and not base.startswith("isthmus-base:")  # for Java by apt
    with tempfile.TemporaryDirectory(prefix="isthmus-image-", dir=_big_folder()) as folder:
        digest = assemble(Path(folder), arch, choice.spark, say)
        say(f"{image}: building")
        command = (
            *("docker", "build", "--tag", image, "--target", target, "--label", f"{SOURCE_LABEL}={digest}"),
            *("--build-arg", f"BASE={base}", "--build-arg", f"BUILD_BASE={build_base}"),
            *(() if needs_network else ("--network", "none")),
            folder,
        )
        said: deque[str] = deque(maxlen=SAID_LINES)

        def hear(line: str) -> None:
            said.append(line)
            on_line(line)

        try:
            engine.run(command, BUILD_TIMEOUT_S, hear)
        except EngineError as error:
            raise EngineError("\n".join((f"{error}; it said:", *(f"    {line}" for line in said)))) from None
    return described(image, base)


def described(image: str, base: str) -> Built:
    said = engine.docker("image", "inspect", "--format", "{{.Id}} {{.Size}}", image).split()
    version = engine.docker("run", "--rm", "--network", "none", image, "--version")
    return Built(image, said[0], int(said[1]), version.rpartition("records: ")[2].rstrip(")\n"), base)


def is_current(image: str = IMAGE) -> bool:
    """Whether the engine's image was built of the source that runs here."""
    if not engine.has_image(image):
        return False
    label = engine.docker("image", "inspect", "--format", f'{{{{index .Config.Labels "{SOURCE_LABEL}"}}}}', image)
    with tempfile.TemporaryDirectory(prefix="isthmus-image-") as folder:
        return label.strip() == copy_source(Path(folder))


def _bases(choice: Choice, say: Say) -> tuple[str, str]:
    """Tags of the base and the base to build in; both are in the engine, and fit."""
    recipe = bases.JAVA if choice.spark else bases.RUN
    if choice.debootstrap:
        base = choice.base or bases.made(recipe, choice.mirror, say)
        build_base = choice.build_base or bases.made(bases.BUILD, choice.mirror, say)
    else:
        try:
            base, build_base = _had(choice.base or BASE, say), _had(choice.build_base or BUILD_BASE, say)
        except EngineError as error:
            if choice.base or choice.build_base:
                raise EngineError(f"{error}; give bases that are here by --base and --build-base") from None
            if why := bases.why_not():
                raise EngineError(f"{error}; give bases that are here by --base and --build-base, or: {why}") from None
            say(f"{error}: the bases are made by debootstrap instead")
            base, build_base = bases.made(recipe, choice.mirror, say), bases.made(bases.BUILD, choice.mirror, say)
    where = _python(base)
    if where != (other := _python(build_base)):
        raise EngineError(f"{base} has its Python at {where}, {build_base} at {other}: they must be the same")
    return base, build_base


def _had(tag: str, say: Say) -> str:
    """The tag, pulled if the engine does not hold it."""
    if not engine.has_image(tag):
        say(f"base {tag}: pulling it")
        try:
            engine.docker("pull", "--quiet", tag, timeout_s=PULL_TIMEOUT_S)
        except EngineError as error:
            raise EngineError(f"{tag} is not here and cannot be pulled ({error})") from None
    return tag


def _python(base: str) -> str:
    """Where the Python of a base lies; EngineError when it is not the one that the packages are for."""
    try:
        said = engine.docker("run", "--rm", "--network", "none", "--entrypoint", "python3", base, "-c", PROBE)
    except EngineError as error:
        raise EngineError(f"{base} cannot be a base, its python3 does not run: {error}") from None
    version, libc, where = said.split()
    if version != PYTHON or libc != "glibc":
        raise EngineError(
            f"{base} has Python {version} on {libc}; the image's packages are for Python {PYTHON} on glibc: "
            f"choose such a base, as {BASE} is"
        )
    return where


def _big_folder() -> str | None:
    """Where a gigabyte may lie for a while; /tmp is memory on some machines."""
    return "/var/tmp" if Path("/var/tmp").is_dir() else None
