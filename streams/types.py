"""Faust's names for types in annotations: `from isthmus.streams.types import StreamT`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ..client import RecordMetadata
from .api import absent
from .api.agents import Agent as AgentT
from .api.app import App as AppT
from .api.channels import Channel as ChannelT
from .api.rows import TableLike as CollectionT
from .api.schema import Schema as SchemaT
from .api.service import Service as ServiceT
from .api.streams import Processor
from .api.streams import Stream as StreamT
from .api.tables import Table as TableT
from .api.topics import Topic as TopicT
from .api.windows import HoppingWindow as WindowT
from .api.windows import Span as WindowRange
from .engine.codecs import Codec as CodecT
from .engine.codecs import CodecArg
from .engine.event import TP, Headers, Message
from .engine.event import Event as EventT
from .engine.event import Message as ConsumerMessage
from .models import FieldDescriptor as FieldDescriptorT
from .models import Model as ModelT
from .models import ModelOptions

__path__ = ()  # so that `absent.Modules` is asked for Faust's modules below this one
__all__ = [
    "TP",
    "AgentT",
    "AppT",
    "ChannelT",
    "CodecArg",
    "CodecT",
    "CollectionT",
    "ConsumerMessage",
    "EventT",
    "FieldDescriptorT",
    "FutureMessage",
    "HeadersArg",
    "K",
    "Message",
    "ModelArg",
    "ModelOptions",
    "ModelT",
    "Processor",
    "RecordMetadata",
    "SchemaT",
    "ServiceT",
    "StreamT",
    "TableT",
    "TopicT",
    "V",
    "WindowRange",
    "WindowT",
]

FutureMessage = Awaitable[RecordMetadata]  # what `send` returns
HeadersArg = Headers
K = V = ModelArg = Any

if not TYPE_CHECKING:
    __getattr__ = absent.of_module("types", __all__)
