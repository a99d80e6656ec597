"""The argument by which commands know a stream app that they do not load: its id."""

from __future__ import annotations

from typing import Annotated

import typer

from ..deploy.errors import DeployError


def as_id(said: str) -> str:
    """Raises DeployError for what says where an app's code is, as other commands take it: ids are parts of names of
    topics, which have no colon and no slash."""
    if ":" in said or "/" in said:
        raise DeployError(f"'{said}' says where an app's code is: this command takes its id, as in App('shop')")
    return said


AppId = Annotated[str, typer.Argument(metavar="APP", help="The app's id.", parser=as_id)]
