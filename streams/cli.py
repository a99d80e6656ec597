"""What commands of an app are declared with: `from isthmus.streams.cli import option`, as in `faust.cli`."""

from click import argument, option

from .command.context import AppCommand

Command = AppCommand

__all__ = ["AppCommand", "Command", "argument", "option"]
