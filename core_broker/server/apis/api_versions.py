"""ApiVersions (key 18): what this broker serves.

v3: the client names its software, which must look like a name. v5: the client may say which cluster and node it means
to reach (KIP-1242). A version we lack is answered as version 0 with error 35 and the versions of this key.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import API_KEY, ApiVersion, Request, Response, SupportedFeatureKey
from ...cluster.quorum_wire import KRAFT_VERSION
from ...cluster.raft_voters import KRAFT_VERSIONS
from .._context import Context
from ..dispatch import Scope, served

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
KEY = 18
ANY_NODE = -1


def handle(request: Request, context: Context) -> Response:
    return _answer(request, context, Scope.BROKER)


def handle_controller(request: Request, context: Context) -> Response:
    return _answer(request, context, Scope.CONTROLLER)


def _answer(request: Request, context: Context, scope: Scope) -> Response:
    if context.version >= 3 and not (
        SOFTWARE.fullmatch(request.client_software_name) and SOFTWARE.fullmatch(request.client_software_version)
    ):
        return Response(error_code=ErrorCode.INVALID_REQUEST)
    services = context.services
    if (request.cluster_id is None) != (request.node_id == ANY_NODE):
        return Response(error_code=ErrorCode.INVALID_REQUEST)  # both or neither
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        services.cluster_id,
        services.node_id,
    ):
        return Response(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    answer = Response(api_keys=_served(scope, context.version))
    if scope is Scope.CONTROLLER:
        low, high = KRAFT_VERSIONS
        answer.supported_features = [SupportedFeatureKey(name=KRAFT_VERSION, min_version=low, max_version=high)]
    return answer


@cache
def _served(scope: Scope, version: int) -> Any:
    """Encoded once: every connection asks, and some ask without an end."""
    rows = (
        ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in sorted(served(scope).items())
    )
    return [API_KEY.encode_bytes(row, version) for row in rows]


def handle_unsupported(request: None, context: Context) -> Response:
    """Of any listener: they all have the same versions of this key."""
    low, high = served(Scope.BROKER)[KEY]
    return Response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=KEY, min_version=low, max_version=high)],
    )
