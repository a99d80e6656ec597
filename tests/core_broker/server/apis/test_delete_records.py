"""DeleteRecords: what it refuses, and that what was deleted stays deleted."""

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import delete_records as m
from isthmus.protocol.messages import list_offsets as lo
from tests.running import run_by

from .serving import serve

E = ErrorCode


def before(topic, offset, index=0):
    row = m.DeleteRecordsPartition(partition_index=index, offset=offset)
    return m.Request(topics=[m.DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=5_000)


async def told(serving, request):
    return [
        (row.error_code, row.low_watermark) for t in (await serving.ask(request)).topics for row in t.partitions
    ]  # fmt: skip


def test_the_log_starts_where_it_was_asked_to_also_after_a_restart(tmp_path):
    async def delete(serving):
        await serving.topic("t")
        serving.fill("t", 10)
        assert await told(serving, before("t", 4)) == [(E.NONE, 4)]
        assert await told(serving, before("t", 2)) == [(E.NONE, 4)]  # it never goes back
        # On disk now, not with the next checkpoint: this is what a kill would leave.
        assert "t 0 4" in (tmp_path / "log-start-offset-checkpoint").read_text()

    async def look(serving):
        row = lo.ListOffsetsPartition(partition_index=0, timestamp=-2)
        answer = await serving.ask(
            lo.Request(replica_id=-1, topics=[lo.ListOffsetsTopic(name="t", partitions=[row])])
        )  # fmt: skip
        assert answer.topics[0].partitions[0].offset == 4
        assert await told(serving, before("t", -1)) == [(E.NONE, 10)]

    serve(delete, tmp_path)
    serve(look, tmp_path)


@run_by(serve)
async def test_offsets_outside_of_the_log_are_refused(serving, /):
    await serving.topic("t")
    serving.fill("t", 10)
    assert await told(serving, before("t", 11)) == [(E.OFFSET_OUT_OF_RANGE, -1)]
    assert await told(serving, before("t", -2)) == [(E.OFFSET_OUT_OF_RANGE, -1)]
    assert serving.replicas.get("t", 0).log.log_start_offset == 0


@run_by(serve)
async def test_what_is_not_there_is_compacted_or_internal_is_refused(serving, /):
    await serving.topic("kept", cleanup_policy="compact")
    await serving.topic("both", cleanup_policy="compact,delete")
    await serving.topic("__consumer_offsets")
    assert await told(serving, before("t", 0)) == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert await told(serving, before("kept", 0, index=1)) == [(E.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert await told(serving, before("kept", 0)) == [(E.POLICY_VIOLATION, -1)]
    assert await told(serving, before("both", 0)) == [(E.NONE, 0)]
    assert await told(serving, before("__consumer_offsets", 0)) == [(E.INVALID_TOPIC_EXCEPTION, -1)]


@run_by(serve)
async def test_a_start_that_cannot_be_saved_is_not_told_as_done(serving, /):
    await serving.topic("t")
    serving.fill("t", 10)

    def refuse(path, data):
        raise OSError(28, "No space left on device", path)

    serving.files.write_atomic, kept = refuse, serving.files.write_atomic
    assert await told(serving, before("t", 4)) == [(E.KAFKA_STORAGE_ERROR, -1)]
    serving.files.write_atomic = kept
    assert await told(serving, before("t", 4)) == [(E.NONE, 4)]
