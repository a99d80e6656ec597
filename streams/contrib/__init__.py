"""What goes with other people's frameworks: `asgi`."""

from typing import TYPE_CHECKING

from ..api import absent

__all__ = ()

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("contrib", __all__)
