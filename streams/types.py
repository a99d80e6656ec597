"""Faust's names for types in annotations: `from isthmus.streams.types import StreamT`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ..client import RecordMetadata
from .api.agents import Agent as AgentT
from .api.app import App as AppT
from .api.channels import Channel as ChannelT
from .api.schema import Schema as SchemaT
from .api.service import Service as ServiceT
from .api.streams import Stream as StreamT
from .api.tables import Table as TableT
from .api.topics import Topic as TopicT
from .api.windows import HoppingWindow as WindowT
from .engine.codecs import CodecArg
from .engine.event import TP, Headers, Message
from .engine.event import Event as EventT
from .models import Model as ModelT

__all__ = [
    "TP",
    "AgentT",
    "AppT",
    "ChannelT",
    "CodecArg",
    "EventT",
    "FutureMessage",
    "HeadersArg",
    "K",
    "Message",
    "ModelT",
    "RecordMetadata",
    "SchemaT",
    "ServiceT",
    "StreamT",
    "TableT",
    "TopicT",
    "V",
    "WindowT",
]

FutureMessage = Awaitable[RecordMetadata]  # what `send` returns
HeadersArg = Headers
K = V = Any
