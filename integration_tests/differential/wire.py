"""Raw requests over one blocking socket: our codec writes the request and reads the answer, to its last byte.

The frame and the headers are written here by hand, so that a fault in the product's own headers cannot hide itself.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any

from isthmus.protocol import messages
from isthmus.protocol.schema import Api, Struct

CLIENT_ID = "differential"
ANSWER_TIMEOUT_S = 30.0


class Connection:
    """One connection to a broker; `ask` sends one request and waits for its answer, `send` and `receive` apart."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)
        self._answers = self._socket.makefile("rb")
        self._last_sent = self._last_received = 0  # correlation ids
        self._sent: deque[tuple[Api, int]] = deque()

    def ask(self, request: Struct, version: int) -> Any:
        """The decoded answer to a request in the given version."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Struct, version: int) -> None:
        """Without waiting: `receive` has the answers, in turn."""
        self._send_request(request, version)
        self._sent.append((type(request).API, version))

    def send_unanswered(self, request: Struct, version: int) -> None:
        """What no answer is due for, as a produce with acks=0."""
        self._send_request(request, version)
        self._last_received = self._last_sent

    def send_raw(self, key: int, version: int) -> None:
        """A request without a body."""
        self._send(key, version, b"", flexible=False)

    def is_closed(self) -> bool:
        """Whether the broker ends the connection; waits for that, or for an answer, which there should not be."""
        try:
            return self._answers.read(1) == b""
        except ConnectionError:
            return True

    def _send_request(self, request: Struct, version: int) -> None:
        api = type(request).API
        body = b"".join(bytes(part) for part in api.encode_request(request, version))
        self._send(api.key, version, body, flexible=api.request_header_version(version) == 2)

    def receive(self) -> Any:
        """The decoded answer to the first request that was sent and not received yet."""
        api, version = self._sent.popleft()
        return decode(api, version, self._receive(f"key {api.key} version {version}"))

    def ask_raw(self, key: int, version: int, body: bytes, flexible: bool) -> bytes:
        """What the broker answers after the correlation id, which is checked."""
        self._send(key, version, body, flexible)
        return self._receive(f"key {key} version {version}")

    def _send(self, key: int, version: int, body: bytes, flexible: bool) -> None:
        self._last_sent += 1
        client_id = CLIENT_ID.encode()
        header = struct.pack(">hhih", key, version, self._last_sent, len(client_id)) + client_id
        frame = header + (b"\0" if flexible else b"") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self, what: str) -> bytes:
        size = self._answers.read(4)
        if len(size) < 4:
            raise ConnectionError(f"the broker closed the connection at {what}")
        data = self._answers.read(struct.unpack(">i", size)[0])
        self._last_received += 1
        assert struct.unpack_from(">i", data)[0] == self._last_received
        return data[4:]

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def decode(api: Api, version: int, data: bytes) -> Any:
    """An answer without its correlation id; it must end where its bytes end."""
    offset = 0
    if api.response_header_version(version) == 1:
        assert data[0] == 0, "a tagged field in the answer's header"
        offset = 1
    answer, end = api.response.decode(memoryview(data), offset, version)
    assert end == len(data), f"{len(data) - end} bytes left of the answer to {api.name} v{version}"
    return answer


def api(key: int) -> Api:
    return messages.APIS[key]


def plain(value: Any, version: int) -> Any:
    """A message as dicts, lists and bytes, with the fields that the version carries."""
    if isinstance(value, Struct):
        return {f.name: plain(getattr(value, f.name), version) for f in value.FIELDS if f.versions.has(version)}
    if isinstance(value, list | tuple):
        return [plain(each, version) for each in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value
