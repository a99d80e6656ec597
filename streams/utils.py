"""Where Faust's programs import `uuid` from, too."""

from .api.ids import uuid

__path__ = ()  # so that `absent.Modules` is asked for Faust's modules below this one
__all__ = ["uuid"]
