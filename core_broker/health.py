"""Is a broker ready? `python -m isthmus.core_broker.health [HOST:PORT]` asks it for its versions and its cluster.

For the health checks of containers. Exit code 0 and one line if the broker answers ApiVersions and Metadata and its
cluster has a controller; otherwise exit code 1 and one line with the reason. It connects only to the given address,
never to the advertised one. It is started every few seconds, so it must be cheap (0.05 s of CPU time): it uses blocking
sockets and imports only the codec.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any

from ..protocol.errors import ProtocolError
from ..protocol.header import RequestHeader, decode_response_header, frame_request
from ..protocol.messages import api_versions, metadata
from ..protocol.schema import Api

DEFAULT_ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 2.5  # of each wait; less than the timeout of the image's health check, so that the reason is printed
ANSWER_MAX_BYTES = 16 << 20
CLIENT_ID = "isthmus-health"


class NotReady(Exception):
    """Why a broker is not ready, in one line."""


def check(address: str, timeout_s: float = TIMEOUT_S) -> str:
    """The line for a ready broker. Raises NotReady."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise NotReady(f"'{address}' is not HOST:PORT")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
            versions = _ask(connection, api_versions.API, api_versions.Request(), 0)
            if versions.error_code:
                raise NotReady(f"{address} answers ApiVersions with error {versions.error_code}")
            offered = [each for each in versions.api_keys if each.api_key == metadata.API.key]
            version = min((metadata.API.max_version, *(each.max_version for each in offered)))
            if not offered or version < 1:
                raise NotReady(f"{address} does not speak Metadata")
            cluster = _ask(connection, metadata.API, metadata.Request(topics=[]), version)
    except TimeoutError:
        raise NotReady(f"{address} did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise NotReady(f"{address} cannot be reached: {error.strerror or error}") from None
    except ProtocolError as error:
        raise NotReady(f"{address} does not answer like a broker: {error}") from None
    if cluster.controller_id < 0:
        raise NotReady(f"{address} answers, but its cluster has no controller yet")
    return f"ready {address}: {len(cluster.brokers)} broker(s) of cluster {cluster.cluster_id}"


def _ask(connection: socket.socket, api: Api, message: Any, version: int) -> Any:
    header = RequestHeader(api.key, version, 1, CLIENT_ID)
    connection.sendall(b"".join(frame_request(header, api.encode_request(message, version))))
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 0 < size <= ANSWER_MAX_BYTES:
        raise NotReady(f"{size} is not a possible size of an answer")
    frame = _read(connection, size)
    _, body = decode_response_header(frame, api.response_header_version(version))
    return api.decode_response(frame, body, version)


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise NotReady("the connection was closed before the answer")
        parts += part
    return bytes(parts)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    address = given[0] if given else os.environ.get("ISTHMUS_BOOTSTRAP", DEFAULT_ADDRESS).partition(",")[0]
    try:
        print(check(address))
    except NotReady as error:
        print(f"not ready: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
