"""Where Faust's programs import `uuid` from, too."""

from .api.ids import uuid

__all__ = ["uuid"]
