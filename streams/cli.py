"""What commands of an app are declared with: `from isthmus.streams.cli import option`, as in `faust.cli`."""

from typing import TYPE_CHECKING

from click import argument, option

from .api import absent
from .command.context import AppCommand

Command = AppCommand

__path__ = ()  # so that `absent.Modules` is asked for Faust's modules below this one
__all__ = ["AppCommand", "Command", "argument", "option"]

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("cli", __all__)
