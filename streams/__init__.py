"""Stream processing in Python with the names of Faust: apps, agents, tables with changelogs, windows by event time.

Where to look:

* what a user writes: `api/` (apps, topics, agents, streams, tables and their windows);
* which topics belong together: `engine/topology.py`; what a checkpoint is: `engine/checkpoint.py`; a task's state:
  `engine/task.py`, `engine/stores/`;
* the life of tasks: `runtime/worker.py`; transactions: `runtime/commits.py`; feeding agents: `runtime/agents.py`;
  where tasks go on: `runtime/restoring.py`, by changelogs that `runtime/loading.py` reads; topics that there are, and
  are made: `runtime/topics.py`, and how the app is laid out over them: `runtime/layout.py`;
* what runs beside agents: `runtime/services.py`, `runtime/process.py`; pages: `runtime/webserver.py`; the command
  line: `command/`; settings: `api/settings.py`;
* reading an app's tables from outside: `table_reader.py`; testing an app without a broker: `driver/`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .api import absent
from .api.agents import Agent
from .api.app import App
from .api.channels import Channel
from .api.global_tables import GlobalTable, SetGlobalTable
from .api.ids import uuid
from .api.rpc import NoReply
from .api.schema import Schema
from .api.service import Service
from .api.sets import SetTable
from .api.settings import Settings
from .api.streams import Stream
from .api.tables import Table
from .api.topics import Topic
from .api.windows import HoppingWindow, TumblingWindow
from .api.work import current_event
from .engine.codecs import Codec
from .engine.datacenters import ByDatacenter
from .engine.event import Event
from .engine.migration import DROP
from .engine.origin import Copy, Origin
from .errors import AppError, ChangelogError, ChangeRefused, RecordError, StreamsError
from .models import Model, ModelOptions, Record

# As Faust has them for annotations; `types.py` has more.
ChannelT, EventT, ServiceT, StreamT, TopicT = Channel, Event, Service, Stream, Topic

if TYPE_CHECKING:
    from . import cli, serializers, types, utils, web
    from .command.embedded import Worker
    from .driver import TestDriver, TestRecord

__all__ = [
    "DROP",
    "Agent",
    "App",
    "AppError",
    "ByDatacenter",
    "ChangeRefused",
    "ChangelogError",
    "Channel",
    "ChannelT",
    "Codec",
    "Copy",
    "Event",
    "EventT",
    "GlobalTable",
    "HoppingWindow",
    "Model",
    "ModelOptions",
    "NoReply",
    "Origin",
    "Record",
    "RecordError",
    "Schema",
    "Service",
    "ServiceT",
    "SetGlobalTable",
    "SetTable",
    "Settings",
    "Stream",
    "StreamT",
    "StreamsError",
    "Table",
    "TestDriver",
    "TestRecord",
    "Topic",
    "TopicT",
    "TumblingWindow",
    "Worker",
    "cli",
    "current_event",
    "serializers",
    "types",
    "utils",
    "uuid",
    "web",
]

_LATER = {  # loaded when it is used
    "cli": ("cli", ""),
    "serializers": ("serializers", ""),
    "types": ("types", ""),
    "utils": ("utils", ""),
    "web": ("web", ""),
    "TestDriver": ("driver", "TestDriver"),
    "TestRecord": ("driver", "TestRecord"),
    "Worker": ("command.embedded", "Worker"),
}

if not any(isinstance(each, absent.Modules) for each in sys.meta_path):
    sys.meta_path.append(absent.Modules())

if not TYPE_CHECKING:
    _missing = absent.of_module("package", __all__)

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            _missing(name)
        where, attribute = _LATER[name]
        module = importlib.import_module(f".{where}", __name__)
        return getattr(module, attribute) if attribute else module
