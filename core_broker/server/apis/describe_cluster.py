"""DescribeCluster (key 60): the cluster's id and its brokers, or its controllers.

v1: the client says whether it means brokers (1) or controllers (2), and is told of those alone that this listener is
for (KIP-919). v2: fenced brokers on request. Addresses are those of the listener the request came in on.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_cluster import DescribeClusterBroker, Request, Response
from .._context import Context
from .metadata import ALL_CLUSTER_OPERATIONS, NOT_ASKED

BROKERS, CONTROLLERS = 1, 2
KINDS = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
KINDS_SINCE = 1


def handle(request: Request, context: Context) -> Response:
    refused = _refused(request, BROKERS, context)
    if refused is not None:
        return refused
    services = context.services
    return _answer(request, context, services.some_broker(), _brokers(request, context))


def handle_controller(request: Request, context: Context) -> Response:
    refused = _refused(request, CONTROLLERS, context)
    if refused is not None:
        return refused
    rows = [
        DescribeClusterBroker(broker_id=node, host=host, port=port)
        for node, host, port in context.services.controllers(context.listener)
    ]
    return _answer(request, context, context.services.quorum.leader_id, rows)


def _refused(request: Request, kind: int, context: Context) -> Response | None:
    """To one that means another kind of node than those that this listener is for."""
    asked = request.endpoint_type
    if asked == kind:
        return None
    if asked not in KINDS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        if context.version < KINDS_SINCE:
            code = ErrorCode.INVALID_REQUEST  # the client does not know the other one
        message = (
            f"The request was sent to an endpoint of type {KINDS[kind]}, but we wanted an endpoint of type "
            f"{KINDS[asked]}"
        )
    return Response(error_code=code, error_message=message, endpoint_type=BROKERS)


def _brokers(request: Request, context: Context) -> list[DescribeClusterBroker]:
    found = []
    for broker in context.services.image.brokers.values():
        endpoint = broker.endpoints.get(context.listener)
        if endpoint is not None and (not broker.fenced or request.include_fenced_brokers):
            row = DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            row.is_fenced = broker.fenced
            found.append(row)
    return sorted(found, key=lambda row: row.broker_id)


def _answer(request: Request, context: Context, controller_id: int, rows: list[DescribeClusterBroker]) -> Response:
    return Response(
        endpoint_type=request.endpoint_type,
        cluster_id=context.services.cluster_id,
        controller_id=controller_id,
        brokers=rows,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
