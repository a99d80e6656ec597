"""Commands that look at the app's program alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from isthmus.readiness import Readiness
from isthmus.streams import App, AppError, Record
from isthmus.streams.cli import AppCommand, argument
from isthmus.streams.command.tree import BUILT_IN, group_of


class Withdrawal(Record, namespace="shop.Withdrawal"):
    """Money that goes."""

    user: str
    amount: float = 0.5


class Polite(AppCommand):
    def greet(self, whom: str) -> None:
        self.say(f"Dear {whom}")


class GreetAll(Polite):
    """Greets all."""

    options = (argument("first"), argument("second"))

    async def run(self, first: str, second: str) -> None:
        self.greet(f"{first} and {second}")


def run(*arguments: str, app: App | None = None) -> Result:
    return CliRunner().invoke(group_of(app or App("shop", origin="shop"), Readiness("")), arguments)


def test_models_are_listed_and_their_fields_shown() -> None:
    listed = json.loads(run("--json", "models").stdout)
    assert {"name": "Withdrawal", "help": "Money that goes."} in listed
    for name in ("Withdrawal", "shop.Withdrawal"):
        assert json.loads(run("--json", "model", name).stdout) == [
            {"field": "user", "type": "str", "default": "*"},
            {"field": "amount", "type": "float", "default": "0.5"},
        ]


def test_a_model_that_is_not_there_gets_the_nearest_name() -> None:
    found = run("model", "Withdrawl")
    assert found.exit_code == 2
    assert "there is no model Withdrawl: is it Withdrawal?" in found.output


def test_every_built_in_command_is_there() -> None:
    assert set(group_of(App("shop"), Readiness("")).commands) == {*BUILT_IN, "greetall"}


def test_a_class_with_run_is_a_command_and_one_without_can_be_the_base_of_one() -> None:
    app = App("shop")

    @app.command(argument("first"), argument("second"), base=Polite)
    async def greet_cmd(self: Polite, first: str, second: str) -> None:
        self.greet(f"{first} or {second}")

    assert run("greetall", "a", "b", app=app).output == "Dear a and b\n"
    assert run("-l", "crit", "greet", "a", "b", app=app).output == "Dear a or b\n"
    with pytest.raises(AppError, match="takes a subclass of AppCommand as base="):
        app.command(base=dict)(greet_cmd)


def test_reset_deletes_what_is_on_this_disk(tmp_path: Path) -> None:
    app = App("shop", datadir=str(tmp_path))
    app.conf.tables_path.mkdir(parents=True)
    assert f"deleted {app.conf.tables_path}" in run("reset", app=app).output
    assert not app.conf.tables_path.exists()
    assert "there is nothing on this disk" in run("reset", app=app).output
