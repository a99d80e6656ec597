"""IncrementalAlterConfigs (key 44): options of topics set, deleted, appended to, subtracted from. v1: flexible."""

from __future__ import annotations

from ....protocol.messages.incremental_alter_configs import AlterConfigsResourceResponse, Request, Response
from ...cluster.controller.alter_configs import AlterConfigs
from ...cluster.controller.common import Result
from ...purgatory import Pending
from ..context import Context
from ..topics import submit


def handle(request: Request, context: Context) -> Pending:
    command = AlterConfigs(request.resources, request.validate_only)
    return submit(command, context.services.config["request.timeout.ms"], _answer, context)


def _answer(result: Result) -> Response:
    return Response(
        responses=[
            AlterConfigsResourceResponse(
                error_code=item.error_code,
                error_message=item.error_message,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
            for item in result.items
        ]
    )
