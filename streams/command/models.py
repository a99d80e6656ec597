"""`models` and `model NAME`: the records that an app's program defines."""

from __future__ import annotations

from typing import Any

import click

from ..models import Record
from ..near import or_near
from .context import AppCommand


@click.command("models")
@click.pass_obj
def list_models(command: AppCommand) -> None:
    """List the records that the program defines."""
    rows = [(_short(command, name), _first_line(model)) for name, model in sorted(_known().items())]
    command.say(command.tabulate(rows, ("name", "help"), "Models"))


@click.command("model")
@click.argument("name")
@click.pass_obj
def show_model(command: AppCommand, name: str) -> None:
    """List the fields of a record. A default of *: the field is required."""
    known = _known()
    found = {
        full: model for full, model in known.items() if name in (full, _short(command, full), full.rpartition(".")[2])
    }
    if not found:
        near = or_near(name, [each.rpartition(".")[2] for each in known])
        raise click.UsageError(f"there is no model {name}{near or '; see models'}")
    for full, model in found.items():
        fields = [getattr(model, field) for field in model._options.fields]
        rows = [(each.field, _type(each.type), "*" if each.required else repr(each.default)) for each in fields]
        command.say(command.tabulate(rows, ("field", "type", "default"), _short(command, full)))


def _known() -> dict[str, Any]:
    """By namespace."""
    return dict(Record._namespaces.models)


def _short(command: AppCommand, name: str) -> str:
    """Without the app's package."""
    return name.removeprefix(f"{command.app.conf.origin}.") if command.app.conf.origin else name


def _first_line(model: Any) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


def _type(of: Any) -> str:
    return of.__name__ if isinstance(of, type) else str(of)
