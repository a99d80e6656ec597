"""ListConfigResources (key 74): the names of topics, brokers, and groups with options; there are no client metrics.

v0 asks for client metrics alone. v1: kinds of resources, all if none is named; an unknown one fails the request.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.list_config_resources import CLIENT_METRICS, ConfigResource, Request, Response
from .._context import Context

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
KINDS = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)  # in the order of Kafka's answers
KINDS_SINCE = 1


def handle(request: Request, context: Context) -> Response:
    known = KINDS if context.version >= KINDS_SINCE else (CLIENT_METRICS,)
    asked = request.resource_types or list(known)
    if any(kind not in known for kind in asked):
        return Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services = context.services
    brokers = [str(node) for node, *_ in services.endpoints(context.listener)]
    groups, topics = list(services.image.group_configs), list(services.image.topics)
    names = {GROUP: groups, BROKER_LOGGER: brokers, BROKER: brokers, TOPIC: topics}
    return Response(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in known
            if kind in asked
            for name in names.get(kind, ())
        ]
    )
