"""AlterConfigs (key 33): all options that topics and brokers have of their own, replaced by those given.

v2: flexible. Deprecated since KIP-339 (IncrementalAlterConfigs), and still what older clients have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.messages.alter_configs import AlterConfigsResource, AlterConfigsResourceResponse, Request, Response
from ...cluster.controller.alter_configs import AlterConfigs
from ...cluster.controller.resources import AlteredResource
from .._context import Context
from ..config_changes import change


def handle(request: Request, context: Context) -> Any:
    def command(resources: list[AlterConfigsResource]) -> AlterConfigs:
        return AlterConfigs(resources, request.validate_only)

    return change(request.resources, _nulls, _changed, command, _answer, context)


def _nulls(resource: AlterConfigsResource) -> list[str]:
    return [each.name for each in resource.configs if each.value is None]


def _changed(resource: AlterConfigsResource, present: Mapping[str, str]) -> dict[str, str]:
    return {each.name: each.value for each in resource.configs if each.value is not None}


def _answer(items: list[AlteredResource]) -> Response:
    return Response(
        responses=[
            AlterConfigsResourceResponse(
                error_code=item.error_code,
                error_message=item.error_message,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
            for item in items
        ]
    )
