"""The topology file: datacenters, the mirrors between them and the stream workers, as a person writes them in YAML.

Reading it gives a checked `Topology` or a `TopologyError` that lists every mistake with file and line. Nothing
here starts a process or opens a socket.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from ..mirror.errors import MirrorError
from ..mirror.link import check_pattern, check_rename, patterns
from .addresses import MAX_PORT, counted_up, overlap
from .errors import TopologyError, counted

FILE_MAX_BYTES = 1 << 20  # thousands of topics; more is some other file
NAME = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="lower-case letters, digits and '-'")
BROKERS = (1, 3, 5)
DEFAULT_FACTOR = 3
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def _one_value(value: Any) -> Any:
    if not isinstance(value, str | int | float):
        several = ": write several as one text, 'compact,delete'" if isinstance(value, list) else ""
        raise ValueError(f"{in_words(value)} is no option's value, which is text, a number, true or false{several}")
    return value


Option = str | int | float | bool
OptionValue = Annotated[Option, BeforeValidator(_one_value)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Topic(_Strict):
    """A topic made when its datacenter starts, if it is not there yet. One that is there is left as it is; `isthmus up`
    tells in what it differs from the file, and `isthmus apply` changes it."""

    partitions: int = Field(default=1, ge=1, le=10_000, description="How many, from 1 to 10,000.")
    replication_factor: int | None = Field(
        default=None,
        ge=1,
        description="On how many brokers each partition is kept; by default 3, or as many as there are brokers. From 3 "
        "on, `min.insync.replicas` is 2 unless `options` say otherwise: what is acknowledged outlives one broker.",
    )
    options: dict[str, OptionValue] = Field(
        default={}, description="[Topic options](configuration.md#topics), `name: value` each."
    )


class Datacenter(_Strict):
    """One broker cluster."""

    brokers: int = Field(
        default=1,
        description="How many brokers, 1, 3 or 5: each is a controller, too, and a majority of them must be there. "
        "Later, 3 may become 5.",
    )
    racks: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[],
        description="Racks that the brokers stand in by turns; a partition's replicas are spread over them. By default "
        "the machine that all of them run on is no rack.",
    )
    listen: str = Field(
        default="127.0.0.1:0",
        description="HOST:PORT for clients, such as 127.0.0.1:9092 or [::1]:9092; of several brokers, that of the "
        "first, and the next ports are those of the others. Port 0 is a free one for each, from 20000 to 29999, chosen "
        "once and kept; in containers, the next one up from `isthmus compose --port-base`.",
    )
    options: dict[str, OptionValue] = Field(
        default={}, description="[Broker options](configuration.md#brokers), `name: value` each."
    )
    topics: dict[str, Topic] = Field(default={}, description="Topics to be made, by their names.")

    @field_validator("brokers")
    @classmethod
    def _has_a_majority(cls, value: int) -> int:
        if value in BROKERS:
            return value
        if value > 0 and value % 2 == 0:
            why = f"{value} brokers can lose no more of them than {value - 1} can, since a majority must be there"
        else:
            why = "each broker of a datacenter votes, and there are 1, 3 or 5 of them"
        raise ValueError(f"{why}: set {min(BROKERS, key=lambda count: (count < value, count))}, not {value}")

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        found = ADDRESS.fullmatch(value)
        if not found or int(found[2]) > MAX_PORT:
            raise ValueError(f"'{value}' is not HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092 (port 0: any free one)")
        return value

    @property
    def listens(self) -> list[str]:
        """HOST:PORT of each broker for clients."""
        return [counted_up(self.listen, i) for i in range(self.brokers)]

    @property
    def default_factor(self) -> int:
        """Replicas of a topic that does not say."""
        return min(self.brokers, DEFAULT_FACTOR)


def _as_value_error(check: Callable[[str], None], value: str) -> None:
    """For pydantic: what a mirror would refuse at its start is refused here, where its line is known."""
    try:
        check(value)
    except MirrorError as error:
        raise ValueError(str(error)) from None


class Mirror(_Strict):
    """A link that carries topics of one datacenter into another, every record once, at its own offset."""

    name: Annotated[str, NAME] = Field(description="The link's name, which owns the topics it makes in the target.")
    source: str = Field(description="The datacenter it reads.")
    target: str = Field(description="The datacenter it writes to, another one.")
    topics: list[str] = Field(
        min_length=1,
        description="Which topics: regular expressions that match whole names; several may stand in one text with "
        "commas between, and blanks around each are dropped. Topics that are made later are found within seconds; "
        "internal ones (`__…`), and what came from the target, are never taken.",
    )
    rename: str = Field(
        default="{source}.{topic}",
        description="Their names in the target, of `{source}`, the datacenter, and `{topic}`. Two links may not make "
        "the same name.",
    )

    @field_validator("topics")
    @classmethod
    def _select_topics(cls, value: list[str]) -> list[str]:
        found = patterns(",".join(value))  # as on the mirror's command line
        for pattern in found:
            _as_value_error(check_pattern, pattern)
        return found

    @field_validator("rename")
    @classmethod
    def _names_the_topic(cls, value: str) -> str:
        _as_value_error(check_rename, value)
        return value


class Worker(_Strict):
    """A stream app that runs against one datacenter."""

    name: Annotated[str, NAME] = Field(description="The worker's name; mirrors and workers share their names.")
    app: str = Field(description="`path/to/file.py:app`, the path beginning at the file's folder, or `module:app`.")
    datacenter: str = Field(description="The datacenter whose topics it reads and writes.")
    web_port: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PORT,
        description="Port of its pages on this machine, also from a container. Otherwise it is the app's `web_port`, "
        "or a free one where the app says none and 6066 is taken, and pages of containers are not reached from "
        "outside.",
    )

    @field_validator("app")
    @classmethod
    def _has_an_object(cls, value: str) -> str:
        path, _, name = value.rpartition(":")
        if not path or not name.isidentifier():
            raise ValueError(f"'{value}' names no object: write path/to/file.py:app or module:app")
        return value


class Topology(_Strict):
    """A whole deployment on one machine."""

    name: Annotated[str, NAME] = Field(description="What `.isthmus/NAME`, the folder of data and logs, is called by.")
    datacenters: dict[Annotated[str, NAME], Datacenter] = Field(
        min_length=1, description="One at least, by their names, which are also what `-b NAME` takes."
    )
    mirrors: list[Mirror] = Field(default=[], description="Links between datacenters.")
    workers: list[Worker] = Field(default=[], description="Stream apps.")

    @model_validator(mode="after")
    def _references_exist(self) -> Topology:
        known = list(self.datacenters)
        problems = []
        listening: dict[str, str] = {}
        for name, datacenter in self.datacenters.items():
            for address in datacenter.listens:
                if taken_by := next((each for there, each in listening.items() if overlap(there, address)), ""):
                    what = f"{address} is the address of {taken_by} already"
                    problems.append(Misreference(("datacenters", name, "listen"), what))
                    break
            listening |= dict.fromkeys(datacenter.listens, name)
            problems += [Misreference(("datacenters", name, *loc), what) for loc, what in impossible(datacenter)]
        for i, mirror in enumerate(self.mirrors):
            for end in ("source", "target"):
                if (name := getattr(mirror, end)) not in self.datacenters:
                    problems.append(Misreference(("mirrors", i, end), unknown(name, known)))
            if mirror.source == mirror.target:
                problems.append(Misreference(("mirrors", i, "target"), "a mirror needs two different datacenters"))
        for i, worker in enumerate(self.workers):
            if worker.datacenter not in self.datacenters:
                problems.append(Misreference(("workers", i, "datacenter"), unknown(worker.datacenter, known)))
            same = [each.name for each in self.workers[:i] if each.web_port == worker.web_port]
            if same and worker.web_port is not None:
                what = f"{worker.web_port} is the port of worker {same[0]} already"
                problems.append(Misreference(("workers", i, "web_port"), what))
        names: dict[str, tuple[str, int]] = {}
        for kind in ("mirrors", "workers"):
            for i, item in enumerate(getattr(self, kind)):
                if item.name in names:
                    other = names[item.name]
                    problems.append(
                        Misreference((kind, i, "name"), f"'{item.name}' is the name of {other[0]}[{other[1]}] already")
                    )
                names.setdefault(item.name, (kind, i))
        if problems:
            raise Misreferences(problems)
        return self


def impossible(datacenter: Datacenter) -> Iterator[tuple[tuple[str, ...], str]]:
    """What a datacenter asks for and cannot have: where in it, and what."""
    count = datacenter.brokers
    brokers = counted(count, "broker")
    if int(datacenter.listens[-1].rpartition(":")[2]) > MAX_PORT:
        yield ("listen",), f"{brokers} have as many ports, and there is none after {MAX_PORT}: begin with a smaller one"
    if len(datacenter.racks) > count:
        yield ("racks",), f"{len(datacenter.racks)} racks for {brokers}: leave out those that would stay empty"
    for name, topic in datacenter.topics.items():
        if (topic.replication_factor or 1) > count:
            what = f"{topic.replication_factor} replicas are on as many brokers, not on {brokers}"
            yield ("topics", name, "replication_factor"), f"{what}: write less, or set `brokers`"


KEY = "[key]"  # what pydantic puts behind a key that is wrong itself
PARTS: dict[str, type[BaseModel]] = {
    "datacenters": Datacenter, "topics": Topic, "mirrors": Mirror, "workers": Worker,
}  # fmt: skip


class Misreference(Exception):
    def __init__(self, loc: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.loc = loc


class Misreferences(Exception):
    """Parts of a topology that do not fit together; pydantic lets it pass through."""

    def __init__(self, problems: list[Misreference]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f": did you mean '{close[0]}'?" if close else f"; there are {', '.join(known)}"
    return f"no datacenter is called '{name}'{hint}"


def load(path: Path | str) -> Topology:
    """Read and check a topology file; TopologyError lists what is wrong, a line `file:line: where: what` each."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            read = file.read(FILE_MAX_BYTES + 1)
        if len(read) > FILE_MAX_BYTES:
            raise TopologyError(f"{path}: is no topology: such a file has {FILE_MAX_BYTES >> 20} MiB at most")
        text = read.decode()
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopologyError(f"{path}: is not UTF-8 text") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Topology:
    """Check the text of a topology file; TopologyError calls it `path`."""
    try:
        data = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = str(error.problem).partition(" with value")[0]
        raise TopologyError(f"{path}:{line}: is not YAML that can be used: {what}") from None
    except YAMLError as error:
        raise TopologyError(f"{path}: is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise TopologyError(f"{path}: is nested deeper than any topology") from None
    if not isinstance(data, dict):
        raise TopologyError(f"{path}:1: a topology is a mapping that begins with `name:` and `datacenters:`")
    try:
        return Topology.model_validate(data)
    except Misreferences as error:
        found = [(problem.loc, str(problem)) for problem in error.problems]
    except ValidationError as error:
        found = [(tuple(step for step in each["loc"] if step != KEY), explain(dict(each))) for each in error.errors()]
    raise mistakes(text, path, found) from None


def with_brokers(topology: Topology, count: int) -> Topology:
    """The same with so many brokers in each datacenter. TopologyError: it cannot be."""
    data = topology.model_dump()
    for datacenter in data["datacenters"].values():
        datacenter["brokers"] = count
    try:
        return Topology.model_validate(data)
    except Misreferences as error:
        raise TopologyError(f"{topology.name}: {error}") from None
    except ValidationError as error:
        raise TopologyError(f"{topology.name}: {explain(dict(error.errors()[0]))}") from None


def mistakes(text: str, path: str, found: Iterable[tuple[tuple[str | int, ...], str]]) -> TopologyError:
    """What is wrong with a topology file whose text is YAML: where in its mappings, and what."""
    node = YAML(typ="safe", pure=True).compose(text)
    lines = [f"{path}:{line_of(node, loc)}: {'.'.join(map(str, loc))}: {what}" for loc, what in found]
    return TopologyError("\n".join(lines))


def explain(error: dict[str, Any]) -> str:
    """A pydantic error in words that name the way out."""
    match error["type"]:
        case "extra_forbidden":
            keys = keys_beside(error["loc"])
            close = difflib.get_close_matches(str(error["loc"][-1]), keys, 1)
            hint = f": did you mean '{close[0]}'?" if close else ""
            return f"is not a key of this part, which has {', '.join(keys)}{hint}"
        case "missing":
            return "is missing"
        case "string_pattern_mismatch":
            return f"'{error['input']}' may hold lower-case letters, digits and '-' only, 63 at most, the first no '-'"
        case "value_error":
            return str(error["ctx"]["error"])
        case "string_type" | "dict_type" | "model_type" | "list_type" as wanted:
            found, loc = in_words(error["input"]), error["loc"]
            match wanted, error["input"]:
                case "string_type", bool() | int() | float():
                    return f'is {found}, not text: write it in quotes, "{found}"'
                case "dict_type" | "model_type", None if loc != ("datacenters",) and isinstance(loc[-1], str):
                    return "is empty: write {} to take the defaults, or leave it out"
                case "list_type", None:
                    return "is empty: write [] for none, or leave it out"
            return f"is {found}, and must be {WANTED[wanted]}"
        case "too_short":
            return "is empty: name one at least"
    found = f", not '{error['input']}'" if isinstance(error["input"], str | int | float) else ""
    return str(error["msg"]).replace("Input should be", "must be").partition(", ")[0] + found


WANTED = {
    "string_type": "text", "list_type": "a list: [a, b]",
    "dict_type": "a mapping: {name: …}", "model_type": "a mapping: {name: …}",
}  # fmt: skip


def in_words(value: Any) -> str:
    """What a person wrote, for a message."""
    match value:
        case None:
            return "empty"
        case bool() | int() | float():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return str(value)


def keys_beside(loc: tuple[str | int, ...]) -> list[str]:
    """The keys of the part that `loc` ends in: a field, then a name or number, then a field of that, and so on."""
    part: type[BaseModel] = Topology
    for field in loc[:-1:2]:
        part = PARTS[str(field)]
    return list(part.model_fields)


def line_of(node: Node | None, loc: tuple[str | int, ...]) -> int:
    """The line of the deepest part of `loc` that is in the file, from 1."""
    line = node.start_mark.line + 1 if node else 1
    for step in loc:
        if isinstance(node, MappingNode):
            for key, value in node.value:
                if key.value == str(step):
                    line, node = key.start_mark.line + 1, value
                    break
            else:
                break
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
