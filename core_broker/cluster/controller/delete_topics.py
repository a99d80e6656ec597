"""DeleteTopics: by name or, from version 6, by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_topics import DeleteTopicState
from ....protocol.messages.metadata_records import RemoveTopicRecord
from ....protocol.primitives import ZERO_UUID
from .common import Decision, Item, Result, View, default_message, duplicates


@dataclass(slots=True)
class DeletedTopic(Item):
    name: str | None = None
    topic_id: bytes = ZERO_UUID


@dataclass(slots=True, frozen=True)
class DeleteTopics:
    """Topics by name and by id. Items: DeletedTopic, the invalid ones first.

    `states`: the topics of a request of version 6 or later; `names`: of an older one.
    """

    names: Sequence[str] = ()
    states: Sequence[DeleteTopicState] = ()

    def decide(self, view: View) -> Decision:
        image = view.image
        if not view.config["delete.topic.enable"]:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            return Decision(self.fail(KafkaError(code, default_message(code))))
        items: list[DeletedTopic] = []
        names, ids = list(self.names), []
        for state in self.states:
            if state.name is None and state.topic_id == ZERO_UUID:
                items.append(_refused("Neither topic name nor id were specified.", None))
            elif state.name is None:
                ids.append(state.topic_id)
            elif state.topic_id == ZERO_UUID:
                names.append(state.name)
            else:
                items.append(_refused("You may not specify both topic name and topic id.", state.name, state.topic_id))
        names_twice, ids_twice = duplicates(names), duplicates(ids)
        items += [_refused("Duplicate topic name.", name) for name in names_twice]
        items += [_refused("Duplicate topic id.", None, topic_id) for topic_id in ids_twice]

        doomed: dict[bytes, str] = {}
        for topic_id in ids:
            topic = image.topic_by_id(topic_id)
            if topic_id in ids_twice:
                continue
            if topic is None:
                items.append(_unknown(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
            else:
                doomed[topic_id] = topic.name
        for name in names:
            topic = image.topics.get(name)
            if name in names_twice:
                continue
            if topic is None:
                items.append(_unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
            elif topic.id in doomed or topic.id in ids_twice:
                doomed.pop(topic.id, None)
                reason = "The provided topic name maps to an ID that was already supplied."
                items.append(_refused(reason, name, topic.id))
            else:
                doomed[topic.id] = name
        items += [DeletedTopic(name=name, topic_id=topic_id) for topic_id, name in doomed.items()]
        return Decision(Result(items), [RemoveTopicRecord(topic_id=topic_id) for topic_id in doomed])

    def fail(self, error: KafkaError) -> Result:
        items = [DeletedTopic(error.code, error.message, name) for name in self.names]
        items += [DeletedTopic(error.code, error.message, state.name, state.topic_id) for state in self.states]
        return Result(items, error)


def _refused(reason: str, name: str | None, topic_id: bytes = ZERO_UUID) -> DeletedTopic:
    return DeletedTopic(ErrorCode.INVALID_REQUEST, reason, name, topic_id)


def _unknown(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> DeletedTopic:
    return DeletedTopic(code, default_message(code), name, topic_id)
