"""`isthmus image`: builds the container image of broker, mirror, stream worker and console."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from . import output
from .output import JsonFlag

app = typer.Typer(no_args_is_help=True)

LINE_MAX = 100  # of what Docker says, shown while it builds


@app.callback()
def group() -> None:
    pass


@app.command()
def build(
    base: Annotated[
        str, typer.Option(help="Image to build on: glibc and Python 3.11. [default: python:3.11-slim-bookworm]")
    ] = "",
    build_base: Annotated[
        str, typer.Option(help="Image to compile in: Python at the same path, and gcc. [default: python:3.11-bookworm]")
    ] = "",
    debootstrap: Annotated[
        bool, typer.Option("--debootstrap", help="Make the bases by debootstrap, as root, without asking a registry.")
    ] = False,
    mirror: Annotated[str, typer.Option(help="URL of the Debian mirror for debootstrap; default its own choice.")] = "",
    spark: Annotated[
        bool, typer.Option("--spark", help="Build the image with Java and PySpark, for the profile spark of compose.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Build the image. Bases that cannot be pulled are made by debootstrap, where that may be."""
    from ..deploy.image.build import Choice
    from ..deploy.image.build import build as build_image

    def say(step: str) -> None:
        output.err.print(escape(step))

    with output.err.status("Docker") as status:
        built = build_image(
            Choice(base, build_base, debootstrap, mirror, spark),
            say,
            lambda line: status.update(escape(line[:LINE_MAX])) if line.strip() else None,
        )
    output.done(
        f"{built.image}: {built.size_bytes / 1e6:.0f} MB on {built.base}, record loops: {built.records}",
        asdict(built),
        as_json,
    )
