"""DescribeLogDirs: sizes as the files have them, and a disk that does not answer."""

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import describe_log_dirs as m
from tests.running import run_by

from .serving import serve


def rows(result):
    return {(t.name, p.partition_index): p.partition_size for t in result.topics for p in t.partitions}


@run_by(serve)
async def test_sizes_of_all_partitions_or_of_those_asked_for(serving, /, tmp_path):
    await serving.topic("a", partitions=2)
    await serving.topic("b")
    serving.fill("a", 5, index=1)
    (result,) = (await serving.ask(m.Request(topics=None))).results
    size = sum(path.stat().st_size for path in (tmp_path / "a-1").glob("*.log"))
    assert size > 0 and rows(result) == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert result.log_dir == str(tmp_path) and 0 < result.usable_bytes < result.total_bytes
    asked = [m.DescribableLogDirTopic(topic="a", partitions=[1, 1, 7]), m.DescribableLogDirTopic(topic="no")]
    (result,) = (await serving.ask(m.Request(topics=asked))).results
    assert rows(result) == {("a", 1): size}


@run_by(serve)
async def test_a_directory_that_cannot_be_looked_at_is_told_with_its_error(serving, /):
    def gone(path):
        raise OSError(5, "Input/output error", path)

    serving.files.volume = gone
    (result,) = (await serving.ask(m.Request(topics=None))).results
    assert (result.error_code, result.topics, result.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
