"""The argument by which commands know a stream app that they do not load: its id."""

from __future__ import annotations

from typing import Annotated

import typer

from ..deploy.errors import DeployError


def as_id(said: str) -> str:
    """Raises DeployError for what is no id, such as what says where an app's code is, as other commands take it."""
    from ..streams.engine import topic_names
    from ..streams.errors import AppError

    if ":" in said or "/" in said:
        raise DeployError(f"'{said}' says where an app's code is: this command takes its id, as in App('shop')")
    try:
        topic_names.check("app id", said)
    except AppError as error:
        raise DeployError(str(error)) from error
    return said


AppId = Annotated[str, typer.Argument(metavar="APP", help="The app's id.", parser=as_id)]
