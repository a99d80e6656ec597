"""Where Faust's programs find codecs: `from isthmus.streams.serializers import codecs`."""

from .engine import codecs

__all__ = ["codecs"]
