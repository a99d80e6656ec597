"""AlterReplicaLogDirs (34): with one data directory a partition may be asked to stay there, and nothing else."""

from __future__ import annotations

from isthmus.protocol.messages import alter_replica_log_dirs as m
from isthmus.protocol.messages import describe_log_dirs

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(path: str, *topics: tuple[str, list[int]]) -> m.Request:
    rows = [m.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in topics]
    return m.Request(dirs=[m.AlterReplicaLogDir(path=path, topics=rows)])


def its_directory(case: Case) -> str:
    [result] = case.prepare(describe_log_dirs.Request(topics=[])).results
    return result.log_dir


def by_partition(answer: dict) -> dict:
    """Kafka answers in the order of a hash table."""
    for topic in answer["results"]:
        topic["partitions"].sort(key=lambda row: row["partition_index"])
    return answer


@SCENARIOS.success(34)
def log_stays_where_it_is(case: Case) -> None:
    case.topic(partitions=2)
    case.compare(request(its_directory(case), (case.name, [0, 1])), only=by_partition)
    case.compare(m.Request(dirs=[]))


@SCENARIOS.error(34)
def a_directory_that_is_not_there(case: Case) -> None:
    case.topic()
    case.compare(request("/no/such/directory", (case.name, [0])))


@SCENARIOS.error(34)
def a_partition_that_is_not_there(case: Case) -> None:
    case.topic()
    case.compare(request(its_directory(case), (case.name, [7])))
