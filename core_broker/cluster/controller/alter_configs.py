"""AlterConfigs: replaces all options of a topic, broker or group by the given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_configs import AlterConfigsResource
from .common import MAX_RECORDS_PER_COMMAND, TOO_MANY_OPTIONS, Decision, Result, View
from .resources import AlteredResource, is_sealed, present_options, records_of_change


@dataclass(slots=True, frozen=True)
class AlterConfigs:
    """Resources as in the request, each once and without nulls. Items: AlteredResource, in the request's order.

    Sealed options stay as they are if they are not named: clients do not know that they would have to repeat them.
    """

    resources: Sequence[AlterConfigsResource]
    validate_only: bool = False

    def decide(self, view: View) -> Decision:
        items, records = [], []
        for resource in self.resources:
            kind, name = resource.resource_type, resource.resource_name
            item = AlteredResource(resource_type=kind, resource_name=name)
            try:
                present = present_options(kind, name, view.image)
                after = {key: text for key, text in present.items() if is_sealed(key, kind)}
                after |= {config.name: config.value or "" for config in resource.configs}
                records += records_of_change(kind, name, after, view)
            except KafkaError as error:
                item.error_code, item.error_message = error.code, error.message
            items.append(item)
        if len(records) > MAX_RECORDS_PER_COMMAND:
            return Decision(self.fail(KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_OPTIONS)))
        return Decision(Result(items), [] if self.validate_only else records)

    def fail(self, error: KafkaError) -> Result:
        items = [
            AlteredResource(error.code, error.message, each.resource_type, each.resource_name)
            for each in self.resources
        ]
        return Result(items, error)
