"""DescribeCluster (key 60): the cluster's id and brokers.

v1: the client says whether it means brokers (1) or controllers (2); a broker answers for brokers only. v2: fenced
brokers on request. Addresses are those of the listener the request came in on.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_cluster import DescribeClusterBroker, Request, Response
from .._context import Context
from .metadata import ALL_CLUSTER_OPERATIONS, NOT_ASKED

BROKERS, CONTROLLERS = 1, 2


def handle(request: Request, context: Context) -> Response:
    kind = request.endpoint_type
    if kind == CONTROLLERS:
        return Response(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
            endpoint_type=BROKERS,
        )
    if kind != BROKERS:
        return Response(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {kind}",
            endpoint_type=BROKERS,
        )
    services = context.services
    return Response(
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in services.endpoints(context.listener)
        ],
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
