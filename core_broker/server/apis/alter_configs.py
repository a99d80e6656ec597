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
from ..config_changes import Kind, change, change_at_controller


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


_KIND = Kind(
    _nulls,
    _changed,
    lambda request, resources: AlterConfigs(resources, request.validate_only),
    lambda request, resources: Request(resources=resources, validate_only=request.validate_only),
    _answer,
)


def handle(request: Request, context: Context) -> Any:
    return change(_KIND, request, context)


def handle_controller(request: Request, context: Context) -> Any:
    return change_at_controller(_KIND, request, context)
