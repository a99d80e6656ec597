"""Requests that the active controller decides are passed on to it by whatever broker a client asks (KIP-590).

The request goes as it came into an Envelope, with who sent it and from where, and the answer's body goes back to the
client unchanged. A node without a channel is the only one, and decides by itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.header import RequestHeader, decode_response_header, frame_request
from ...protocol.messages import envelope
from ...protocol.schema import Api
from ..purgatory import Pending
from ._context import CloseConnection, Context
from .refusals import REFUSALS
from .topics import timed_out

SIZE_BYTES = 4  # of a frame, which is not part of what is passed on
CORRELATION_ID = 0  # of a request in an envelope; the envelope's own tells the answers apart
ANONYMOUS = envelope.encode_principal(
    envelope.Principal(type="User", name="ANONYMOUS", token_authenticated=False)
)  # nobody authenticates
NO_ADDRESS = bytes(4)

Handler = Callable[[Any, Context], Any]


class ForwardedAnswer:
    """An answer that another node has encoded. body: without its header."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


def forwarding(api: Api, handle: Handler) -> Handler:
    """The handler of a request that only the active controller decides. handle: the handler there."""

    def handle_or_forward(request: Any, context: Context) -> Any:
        if context.services.channel is None:
            return handle(request, context)
        version = context.version

        def refused(error: KafkaError) -> Any:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                return CloseConnection(f"the controller has no {api.name} of version {version}")
            return REFUSALS[api.key](request, version, error)

        return forward(request, context, timeout_of(request, context), ForwardedAnswer, refused)

    return handle_or_forward


def encoding(encode: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """The encoder of a route whose requests may be forwarded."""

    def encode_any(answer: Any) -> list[Any]:
        return [answer.body] if type(answer) is ForwardedAnswer else encode(answer)

    return encode_any


def timeout_of(request: Any, context: Context) -> int:
    """How long the client waits, as far as its request says so."""
    timeout_ms: int = getattr(request, "timeout_ms", context.services.config["request.timeout.ms"])
    return timeout_ms


def forward(
    request: Any,
    context: Context,
    timeout_ms: int,
    answered: Callable[[bytes], Any],
    refused: Callable[[KafkaError], Any],
) -> Pending:
    """Have the active controller answer a request. answered(body), refused(error): the answer for the client.

    Raises EncodeError.
    """
    pending = Pending(lambda: refused(timed_out(timeout_ms)))
    context.services.purgatory.add(pending, timeout_ms)
    if pending.done:
        return pending
    api, version = type(request).API, context.version
    channel = context.services.channel
    assert channel is not None
    header = RequestHeader(api.key, version, CORRELATION_ID, context.client_id)
    frame = b"".join(frame_request(header, api.encode_request(request, version)))
    message = envelope.Request(
        request_data=frame[SIZE_BYTES:], request_principal=ANONYMOUS, client_host_address=_address(context.client_host)
    )

    async def ask() -> None:
        try:
            answer = await channel.request(message, timeout_ms)
        except KafkaError as error:
            pending.complete(refused(error))
            return
        if answer.error_code:
            pending.complete(refused(_refused_by_controller(answer.error_code)))
            return
        _, at = decode_response_header(answer.response_data, api.response_header_version(version))
        pending.complete(answered(bytes(answer.response_data[at:])))

    context.services.spawn(ask(), f"{api.name} to the controller")
    return pending


def _refused_by_controller(code: int) -> KafkaError:
    """As Kafka tells its clients: what is wrong with an envelope is not theirs."""
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return KafkaError(code)
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller did not take the envelope: {KafkaError(code).name}"
    )


def _address(host: str) -> bytes:
    """4 or 16 bytes."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return NO_ADDRESS
