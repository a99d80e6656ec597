"""Envelope (key 58): a client's request that a broker has passed on to this controller (KIP-590).

It is handled as if the client had come by itself, and its answer goes back in the envelope, header and body. An answer
with NOT_CONTROLLER anywhere in it is left out: the broker then asks the controller that is.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ....protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from ....protocol.messages import APIS
from ....protocol.messages.envelope import Request, Response, decode_principal
from ....protocol.schema import Api
from ...controller_channel import has_error
from ...purgatory import Pending
from .._context import Context
from .._frames import HEAD, skip_tags
from ..dispatch import FORWARDED, FORWARDED_IN_PART, Scope, handler, served

ADDRESS_BYTES = (4, 16)


def handle(request: Request, context: Context) -> Any:
    try:
        _check_sender(request)
        api, correlation_id, message, inner = _opened(bytes(request.request_data), request, context)
    except KafkaError as error:
        return Response(error_code=error.code)
    answer = handler(api.key, Scope.CONTROLLER)(message, inner)
    if not isinstance(answer, Pending):
        return _sealed(api, inner.version, correlation_id, answer)
    pending = Pending(lambda: Response(error_code=ErrorCode.REQUEST_TIMED_OUT), answer.abandon)
    version = inner.version
    answer.when_done(lambda given: pending.complete(_sealed(api, version, correlation_id, given)))
    return pending


def _check_sender(request: Request) -> None:
    try:
        decode_principal(request.request_principal or b"")
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    if len(request.client_host_address) not in ADDRESS_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a client's address has 4 or 16 bytes")


def _opened(frame: bytes, request: Request, context: Context) -> tuple[Api, int, Any, Context]:
    """(API, correlation id, message, context) of the request in an envelope. Raises KafkaError.

    What cannot be read is UNSUPPORTED_VERSION, as in Kafka: the sender has read it.
    """
    unreadable = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the request in the envelope cannot be read")
    if len(frame) < HEAD.size:
        raise unreadable
    key, version, correlation_id, length = HEAD.unpack_from(frame)
    if key not in APIS:
        raise unreadable
    api = APIS[key]
    low, high = served(Scope.CONTROLLER).get(key, (0, api.max_version))
    if not low <= version <= high:
        raise unreadable
    if key not in (*FORWARDED, *FORWARDED_IN_PART):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{api.name} is not to be forwarded")
    at = HEAD.size + max(length, 0)
    inner = Context(context.services, context.listener, str(ipaddress.ip_address(bytes(request.client_host_address))))
    inner.version = version
    try:
        if at > len(frame):
            raise unreadable
        inner.client_id = frame[HEAD.size : at].decode("utf-8", "replace")
        body = skip_tags(frame, at) if api.request_header_version(version) == 2 else at
        return api, correlation_id, api.decode_request(frame, body, version), inner
    except ProtocolError:
        raise unreadable from None


def _sealed(api: Api, version: int, correlation_id: int, answer: Any) -> Response:
    if has_error(answer, ErrorCode.NOT_CONTROLLER):
        return Response(error_code=ErrorCode.NOT_CONTROLLER)
    head = correlation_id.to_bytes(4, "big", signed=True) + bytes(api.response_header_version(version))
    return Response(response_data=head + b"".join(api.encode_response(answer, version)))
