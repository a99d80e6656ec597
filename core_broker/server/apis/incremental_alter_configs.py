"""IncrementalAlterConfigs (key 44): options set, deleted, appended to, subtracted from, of topics, brokers and groups.

Levels of this broker's own log are changed in the same way (KIP-412).

v1: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    Request,
    Response,
)
from ...cluster.controller.incremental_alter_configs import IncrementalAlterConfigs, Operation, changed_options
from ...cluster.controller.resources import AlteredResource
from .._context import Context
from ..broker_loggers import BROKER_LOGGER, alter_levels
from ..config_changes import Kind, change, change_at_controller


def _nulls(resource: AlterConfigsResource) -> list[str]:
    return [each.name for each in resource.configs if each.value is None and each.config_operation != Operation.DELETE]


def _changed(resource: AlterConfigsResource, present: Mapping[str, str]) -> dict[str, str]:
    return changed_options(present, resource.configs, resource.resource_type)


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


def _here(request: Request, resource: AlterConfigsResource, context: Context) -> bool:
    if resource.resource_type != BROKER_LOGGER:
        return False
    alter_levels(resource, request.validate_only, context)
    return True


_KIND = Kind(
    _nulls,
    _changed,
    lambda request, resources: IncrementalAlterConfigs(resources, request.validate_only),
    lambda request, resources: Request(resources=resources, validate_only=request.validate_only),
    _answer,
    _here,
)


def handle(request: Request, context: Context) -> Any:
    return change(_KIND, request, context)


def handle_controller(request: Request, context: Context) -> Any:
    return change_at_controller(_KIND, request, context)
