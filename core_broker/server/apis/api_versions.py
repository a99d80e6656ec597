"""ApiVersions (key 18): what this broker serves.

v3: the client names its software, which must look like a name; the answer has features, what this node can work at and
what the cluster has finalized (KIP-584). v4: also those that begin at level 0, which older clients cannot read. v5:
the client may say which cluster and node it means to reach (KIP-1242). A version we lack is answered as version 0 with
error 35 and the versions of this key.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages.api_versions import (
    API_KEY,
    SUPPORTED_FEATURE,
    ApiVersion,
    FinalizedFeatureKey,
    Request,
    Response,
    SupportedFeatureKey,
)
from ...cluster.features import KRAFT_VERSION, SUPPORTED
from .._context import Context
from ..dispatch import Scope, served

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
KEY = 18
ANY_NODE = -1
FEATURES_SINCE = 3
FROM_ZERO_SINCE = 4  # KAFKA-17011: before, a lowest level of 0 is a wrong one


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
    if context.version >= FEATURES_SINCE:
        answer.supported_features = _supported(context.version)
        answer.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in _finalized(context)
        ]
        answer.finalized_features_epoch = services.image.offset
    return answer


def _finalized(context: Context) -> list[tuple[str, int]]:
    """By name. That of kraft.version is in the quorum's own records."""
    levels = dict(context.services.image.features)
    raft = context.services.quorum.raft
    if raft is not None and raft.voters.kraft_version:
        levels[KRAFT_VERSION] = raft.voters.kraft_version
    return sorted(levels.items())


@cache
def _served(scope: Scope, version: int) -> Any:
    """Encoded once: every connection asks, and some ask without an end."""
    rows = (
        ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in sorted(served(scope).items())
    )
    return [API_KEY.encode_bytes(row, version) for row in rows]


@cache
def _supported(version: int) -> Any:
    """Encoded once, too."""
    return [
        SUPPORTED_FEATURE.encode_bytes(SupportedFeatureKey(name=name, min_version=low, max_version=high), version)
        for name, (low, high) in SUPPORTED.items()
        if low or version >= FROM_ZERO_SINCE
    ]


def handle_unsupported(request: None, context: Context) -> Response:
    """Of any listener: they all have the same versions of this key."""
    low, high = served(Scope.BROKER)[KEY]
    return Response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=KEY, min_version=low, max_version=high)],
    )
