"""What clients did to a cluster, and what was done to it: operations with invocation, completion and outcome.

Times are of one monotonic clock, in seconds from the history's begin. Partitions are numbers: a history has one topic,
or two, which transactions copy one into the other; then the partitions of the second are counted on from the first's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"  # done; certainly not done; perhaps done, perhaps later
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(slots=True)
class Send:
    """A record that `worker` gave to its producer. number: counts the worker's sends. offset: if it was told one."""

    worker: str
    partition: int
    number: int
    invoked_s: float
    completed_s: float = math.inf
    outcome: str = INFO
    offset: int = -1
    error: str = ""

    @property
    def value(self) -> str:
        return f"{self.worker}:{self.number}"


@dataclass(slots=True)
class Poll:
    """Records, as (offset, value), that one poll gave of one partition.

    span: number of the worker's assignment or seek, after which it may read elsewhere. group: "" if it has none.
    """

    worker: str
    span: int
    partition: int
    invoked_s: float
    completed_s: float
    records: list[tuple[int, str]]
    group: str = ""


@dataclass(slots=True)
class Commit:
    """An offset that a member committed for its group."""

    worker: str
    group: str
    partition: int
    offset: int
    invoked_s: float
    completed_s: float = math.inf
    outcome: str = INFO
    error: str = ""


@dataclass(slots=True)
class Committed:
    """The offset that the coordinator told as the group's; -1: none."""

    worker: str
    group: str
    partition: int
    offset: int
    invoked_s: float
    completed_s: float


@dataclass(slots=True)
class FinalRead:
    """All records of a partition, read from offset 0 after all faults had ended. end: its high watermark then.
    isolation: as the consumer's option; of histories without transactions it does not matter."""

    partition: int
    end: int
    records: list[tuple[int, str]]
    isolation: str = READ_UNCOMMITTED


@dataclass(slots=True)
class Start:
    """A producer with a transactional id that started: from then on those that had the id before are fenced."""

    worker: str
    transactional_id: str
    invoked_s: float
    completed_s: float = math.inf
    outcome: str = INFO
    error: str = ""


@dataclass(slots=True)
class Write:
    """A record of a transaction. offset: if the producer was told one. source: partition and offset of the record that
    it copies, or None."""

    partition: int
    number: int
    invoked_s: float
    offset: int = -1
    source: tuple[int, int] | None = None


@dataclass(slots=True)
class Transaction:
    """What a producer wrote in one transaction, the offsets of `group` by partition that it sent, and how it ended.

    asked_s: when its commit was asked for; inf: never. outcome: OK if it is committed, FAIL if it is certainly not,
    INFO if nobody knows. fenced: the producer was told that another has its id.
    """

    worker: str
    transactional_id: str
    begun_s: float
    writes: list[Write] = field(default_factory=list)
    group: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    asked_s: float = math.inf
    completed_s: float = math.inf
    outcome: str = FAIL
    fenced: bool = False
    error: str = ""

    def value(self, write: Write) -> str:
        return f"{self.worker}:{write.number}"


@dataclass(slots=True)
class Fault:
    """led: the partitions that the node led when it began. behind: those of them that lacked a replica in sync.
    ended_s: it was told to end; the node may need longer."""

    kind: str
    node: int
    led: list[int]
    began_s: float
    ended_s: float = math.inf
    behind: list[int] = field(default_factory=list)


@dataclass
class History:
    """Each list in the order of invocations. errors: what calls raised that have no operation of their own, by text.
    unfinished: what did not come back after all faults had ended, and nodes that ended of themselves."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    finals: list[FinalRead] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def note(self, worker: str, error: BaseException | str) -> None:
        said = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        text = f"{worker}: {said[:200]}"
        self.errors[text] = self.errors.get(text, 0) + 1

    def write(self, path: Path) -> None:
        """As JSON, one operation a line."""
        with open(path, "w") as file:
            for name, operations in self._lists():
                for each in operations:
                    print(json.dumps({"list": name, **asdict(each)}), file=file)
            print(json.dumps({"list": "rest", "errors": self.errors, "unfinished": self.unfinished}), file=file)

    def _lists(self) -> Iterable[tuple[str, list[Any]]]:
        return [(name, getattr(self, name)) for name in LISTS]

    @classmethod
    def read(cls, path: Path) -> History:
        made = cls()
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            name = fields.pop("list")
            if name == "rest":
                made.errors, made.unfinished = fields["errors"], fields["unfinished"]
                continue
            if "records" in fields:
                fields["records"] = [(offset, value) for offset, value in fields["records"]]
            if name == "transactions":
                fields["writes"] = [_write(each) for each in fields["writes"]]
                fields["offsets"] = {int(partition): offset for partition, offset in fields["offsets"].items()}
            getattr(made, name).append(LISTS[name](**fields))
        return made


def _write(fields: dict[str, Any]) -> Write:
    made = Write(**fields)
    if made.source is not None:
        partition, offset = made.source
        made.source = partition, offset
    return made


LISTS: dict[str, type] = {
    "sends": Send,
    "polls": Poll,
    "commits": Commit,
    "committed": Committed,
    "finals": FinalRead,
    "faults": Fault,
    "starts": Start,
    "transactions": Transaction,
}
