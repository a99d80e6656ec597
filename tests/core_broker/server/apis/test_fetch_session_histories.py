"""Random histories of a fetch session: what a client learns through it is what it would learn without one."""

import random

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch as m

from .serving import serve

PARTITIONS = 4
STEPS = 80
# Of a topic that was deleted a session remembers the name, as Kafka's do, so that it tells more than a lone request.
GONE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
LIMIT_BYTES = 1 << 24  # more than there ever is, so that no limit decides what is told


class Client:
    """What a consumer of the session knows: by topic id and partition what it was told last."""

    def __init__(self, serving):
        self.serving = serving
        self.offsets = {}  # what is fetched
        self.known = {}
        self.session, self.epoch = 0, 0

    async def poll(self, changed=(), forgotten=()):
        """One fetch of the session; of what is not in its answer the client believes what it was told before."""
        begins = self.epoch == 0
        answer = await self._ask(self.offsets if begins else changed, self.session, self.epoch, forgotten)
        if answer.error_code:
            assert answer.error_code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            self.session, self.epoch = 0, 0
            return await self.poll()
        if begins:
            self.known.clear()
        self.known.update(told(answer))
        self.session, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        return None

    async def without_session(self):
        return told(await self._ask(self.offsets, 0, -1, ()))

    async def _ask(self, keys, session, epoch, forgotten):
        topics = {}
        for topic_id, index in keys:
            row = m.FetchPartition(
                partition=index, fetch_offset=self.offsets[topic_id, index], partition_max_bytes=LIMIT_BYTES
            )
            topics.setdefault(topic_id, m.FetchTopic(topic_id=topic_id)).partitions.append(row)
        gone = [m.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forgotten]
        return await self.serving.ask(
            m.Request(
                max_wait_ms=0, min_bytes=0, max_bytes=LIMIT_BYTES, session_id=session, session_epoch=epoch,
                topics=list(topics.values()), forgotten_topics_data=gone,
            )
        )  # fmt: skip


def told(answer):
    """Error, high watermark, log start and bytes of each partition of an answer."""
    return {
        (topic.topic_id, row.partition_index): (
            "gone" if row.error_code in GONE else row.error_code,
            row.high_watermark,
            row.log_start_offset,
            b"".join(part.read() for part in row.records or ()),
        )
        for topic in answer.responses
        for row in topic.partitions
    }


@pytest.mark.parametrize("seed", range(12))
def test_what_is_learnt_through_a_session_is_what_would_be_learnt_without(tmp_path, seed):
    chance = random.Random(seed)

    async def work(serving):
        client = Client(serving)
        topics = {name: await serving.topic(name, partitions=PARTITIONS) for name in ("a", "b")}
        for topic_id in topics.values():
            client.offsets |= {(topic_id, index): 0 for index in range(PARTITIONS)}
        for _ in range(STEPS):
            name, index = chance.choice(sorted(topics)), chance.randrange(PARTITIONS)
            key = topics[name], index
            changed, forgotten = [], []
            match chance.choice(
                ["append"] * 4
                + ["read"] * 6
                + ["delete"] * 2
                + ["epoch", "forget", "add", "remake", "lose", "wrong", "idle"]
            ):
                case "append":
                    serving.fill(name, chance.randint(1, 3), index=index)
                case "read":
                    if key in client.offsets:
                        end = serving.replicas.get(name, index).high_watermark
                        client.offsets[key] = end if chance.random() < 0.7 else chance.randint(0, end + 1)
                        changed = [key]
                        if key in client.known:  # at another offset: what was there before says nothing any more
                            client.known[key] = (*client.known[key][:3], b"")
                case "delete":
                    partition = serving.replicas.get(name, index)
                    partition.delete_records(chance.randint(0, partition.high_watermark))
                case "epoch":
                    await serving.controller.submit_wait(RaiseLeaderEpoch([(name, index, chance.randint(0, 3))]))
                case "forget":
                    if key in client.offsets:
                        del client.offsets[key]
                        client.known.pop(key, None)
                        forgotten = [key]
                case "add":
                    client.offsets.setdefault(key, 0)
                    changed = [key]
                case "remake":
                    await serving.controller.submit_wait(DeleteTopics([name]))
                    topics[name] = await serving.topic(name, partitions=PARTITIONS)
                case "lose":
                    client.session = 0  # and with it what it had in mind: it begins anew
                    client.epoch = 0
                case "wrong":
                    client.epoch += client.epoch > 0
            await client.poll(changed, forgotten)
            if client.offsets:
                assert client.known == await client.without_session()

    serve(work, tmp_path, max_incremental_fetch_session_cache_slots=str(chance.choice([0, 1, 9])))
