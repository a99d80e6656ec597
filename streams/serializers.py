"""Where Faust's programs find codecs: `from isthmus.streams.serializers import codecs`."""

from typing import TYPE_CHECKING

from .api import absent
from .api.schema import Schema
from .engine import codecs
from .engine.codecs import Codec

__path__ = ()  # so that `absent.Modules` is asked for Faust's modules below this one
__all__ = ["Codec", "Schema", "codecs"]

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("serializers", __all__)
