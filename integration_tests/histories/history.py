"""What clients did to a cluster, and what was done to it: operations with invocation, completion and outcome.

Times are of one monotonic clock, in seconds from the history's begin. Partitions are numbers: a history has one topic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OK, FAIL, INFO = "ok", "fail", "info"  # done; certainly not done; perhaps done, perhaps later


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
    """All records of a partition, read from offset 0 after all faults had ended. end: its high watermark then."""

    partition: int
    end: int
    records: list[tuple[int, str]]


@dataclass(slots=True)
class Fault:
    """led: the partitions that the node led when it began. ended_s: it was told to end; the node may need longer."""

    kind: str
    node: int
    led: list[int]
    began_s: float
    ended_s: float = math.inf


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
            getattr(made, name).append(LISTS[name](**fields))
        return made


LISTS: dict[str, type] = {
    "sends": Send,
    "polls": Poll,
    "commits": Commit,
    "committed": Committed,
    "finals": FinalRead,
    "faults": Fault,
}
