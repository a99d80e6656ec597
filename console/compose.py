"""`isthmus compose`: the compose file of a topology, written or checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..deploy.errors import DeployError
from ..deploy.launch import PORT_BASE
from ..deploy.whole import write_whole
from .processes import DEFAULT_FILE, File

STDOUT = Path("compose.yaml")  # the name that the heading gives to what is printed


def compose(
    file: File = DEFAULT_FILE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to; default: print it.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing: fail if --output is not current.")] = False,
    port_base: Annotated[
        int, typer.Option(min=1, max=65_535, help="Ports for clients outside count up from here.")
    ] = PORT_BASE,
) -> None:
    """Make the compose file of a topology: `docker compose -f OUTPUT up -d` then runs it in containers.

    A datacenter's port for clients outside is that of its `listen`, else it counts from --port-base, in the order of
    the file.
    """
    from ..deploy.compose import compose_file

    text = compose_file(file, output or STDOUT, port_base)
    if output is None:
        if check:
            raise DeployError("--check needs the file to look at: --output FILE")
        print(text, end="")
    elif check:
        if not output.exists() or output.read_text() != text:
            raise DeployError(
                f"{output} is not what {file} says: write it anew by `isthmus compose -f {file} -o {output}`"
            )
    else:
        try:
            write_whole(output, text)
        except OSError as error:
            raise DeployError(f"{output}: cannot be written: {error.strerror}") from None
