import asyncio
from collections.abc import Callable
from typing import Any

from .buffers import Buffers
from .context import Context, Services
from .dispatch import Route
from .due import DueAnswers
from .latency import Latency
from .owner import ConnectionOwner

COMPILED: bool
DUE_ANSWERS: int
GROWTH: int
REQUESTS_A_TURN: int

class Asking:
    services: Services
    listener: str
    client_host: str
    client_id: str
    version: int

class Body: ...

class AtOnce:
    def __call__(self, frame: memoryview, body: int, correlation: int, context: Context) -> Any: ...

class Routed:
    answer_at_once: AtOnce | None
    decode: Callable[[Any, int], tuple[Any, int]]
    handle: Callable[[Any, Context], Any]
    latency: Latency
    requests: int
    version: int
    flexible_request: bool

class Serving:
    routes: dict[int, Any]
    scratch: memoryview
    buffers: Buffers
    clock: Callable[[], int] | None
    tell: Callable[[Route, int, Context, int], None] | None
    tick: int
    max_request_bytes: int

class Receiving:
    _server: ConnectionOwner
    context: Context
    _transport: asyncio.Transport
    _scratch: memoryview
    _held: bytearray | None
    _client: bytes
    _due: DueAnswers | None
    _out: list[Any]
    _route: Route | None
    _number: int
    _filled: int
    _need: int
    _fd: int
    tick: int
    busy: bool
    writable: bool
    _waits_for_due: bool
    obstacles: int
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def _handle_held(self) -> None: ...
    def _flush(self) -> None: ...
    def _send_ranges(self) -> None: ...

def skip_tags(frame: memoryview, position: int) -> int: ...
